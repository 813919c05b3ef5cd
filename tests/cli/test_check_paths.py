"""Paths and variables that vLLM does not take, or takes for something else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_check import SPECS, TARGET, check, error_of


@pytest.mark.parametrize("path", ["~/target", "file:///models/target"])
@pytest.mark.parametrize("whose", ["target", "draft"])
def test_paths_that_vllm_does_not_take_are_told(
    path: str, whose: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = json.dumps(SPECS["eagle"] | ({"model": path} if whose == "draft" else {}))
    model = path if whose == "target" else TARGET
    said = error_of(capsys, "--light", model, "--speculative-config", spec)
    assert "; give the whole path" in said or "; give the path itself" in said


@pytest.mark.parametrize("light", [(), ("--light",)])
@pytest.mark.parametrize("part", ["eagle3", "Eagle-", "dflash", "dspark"])
def test_a_path_that_vllm_takes_for_another_method(
    part: str,
    light: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whatever method is named; a link to it helps."""
    root = tmp_path_factory.mktemp("drafts")  # a test's own folder has the part in its name
    folder = root / f"{part}drafts" / "small"
    folder.parent.mkdir()
    folder.symlink_to(Path(TARGET).absolute())
    spec = {"method": "draft_model", "model": str(folder), "num_speculative_tokens": 2}
    said = error_of(capsys, *light, TARGET, "--speculative-config", json.dumps(spec))
    assert said.startswith(f"speculative_config.model={str(folder)!r}: vLLM takes it for method ")
    link = root / "small"
    link.symlink_to(folder)
    words = ["--speculative-config", json.dumps(spec | {"model": str(link)})]
    assert check(capsys, *light, TARGET, *words)["exit"] == 0


def test_the_targets_path_counts_for_mtp(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "eagle3-target"
    folder.symlink_to(Path("examples/zoo/target-mimo").absolute())
    spec = json.dumps({"method": "mtp", "num_speculative_tokens": 2})
    said = error_of(capsys, "--light", str(folder), "--speculative-config", spec)
    assert said.startswith(f"model={str(folder)!r}: vLLM takes it for method 'eagle3'")


def test_where_vllm_ignores_us_speculation_is_refused_and_other_engines_are_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VLLM_TARGET_DEVICE", "cpu")
    said = "VLLM_TARGET_DEVICE=cpu makes vLLM ignore all plugins for platforms"
    words = ["--light", TARGET]
    spec = ["--speculative-config", json.dumps(SPECS["ngram"])]
    assert error_of(capsys, *words, *spec).startswith(said)
    (note,) = check(capsys, *words)["notes"]
    assert note.startswith(said)
