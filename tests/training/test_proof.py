"""A head is measured beside what there was before, and a worse one is not kept."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from tests.training.proof_folder import COUNT, GOOD, MAX_TOKENS, set_up
from vllm_ascend_spec.cli import serve
from vllm_ascend_spec.cli.train import serve_words
from vllm_ascend_spec.methods.suffix import checks
from vllm_ascend_spec.training.contenders import FROM, HEAD, NONE, SUFFIX
from vllm_ascend_spec.training.measure import GREEDY, REQUESTS, part
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.phases import proof
from vllm_ascend_spec.training.settings import Settings

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module", autouse=True)
def environment() -> Iterator[None]:
    """Set the variables that the command sets for its phases."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in serve.environment(dict(os.environ)).items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def proved(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return settings of a folder in which the zoo's head was measured."""
    settings = set_up(tmp_path_factory.mktemp("proof") / "good", GOOD)
    lines: list[str] = []
    assert not proof.is_done(settings)
    proof.run(settings, lines.append)
    assert proof.is_done(settings)
    names = ["no speculation", "suffix", "new head"]
    if checks.library_problem() is not None:
        names.remove("suffix")
    assert [line.partition(",")[0] for line in lines] == [
        f"proof: {name}: the engine starts" for name in names
    ]
    assert lines[-1].endswith(" s left")
    return settings


def report_of(settings: Settings) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Output(settings.output).report.read_text())
    return found


def test_the_head_is_worth_what_it_is(proved: Settings) -> None:
    report = report_of(proved)
    found = report["results"][HEAD][GREEDY]
    assert found["tokens_per_step"] > 1.5
    first, *_, last = found["per_position"]
    assert first > last > 0
    assert len(found["per_position"]) == proved.num_speculative_tokens
    assert report["results"][NONE][GREEDY]["tokens_per_step"] == 1
    assert report["results"][NONE][GREEDY]["tokens"] == found["tokens"] <= COUNT * MAX_TOKENS


def test_all_texts_are_those_without_speculation(proved: Settings) -> None:
    """Sampled ones too: they have seeds."""
    expected = dict.fromkeys(REQUESTS, COUNT)
    assert set(map(str, report_of(proved)["same_texts"].values())) == {str(expected)}


def test_the_report_says_how_it_was_measured(proved: Settings) -> None:
    report = report_of(proved)
    assert report["kept"] == HEAD
    assert report["prompts"] == report["requests_at_once"] == COUNT
    assert report["settings"]["dtype"] == "float32"
    assert report["provenance"]["versions"]["vllm-ascend-spec"]
    assert report["device"] is not None
    spec = report["speculative_config"]
    assert spec["model"] == str(Output(proved.output).head)
    assert 1 <= spec["num_speculative_tokens"] <= proved.num_speculative_tokens
    assert (SUFFIX in report["results"]) == (SUFFIX not in report["left_out"])


def test_a_worse_head_is_not_kept(proved: Settings, tmp_path: Path) -> None:
    """Its rows are shuffled. What was measured before is not measured again."""
    damaged = shutil.copytree(GOOD, tmp_path / "damaged")
    tensors = load_file(damaged / "model.safetensors")
    tensors["fc.weight"] = tensors["fc.weight"].flip(0).contiguous()
    save_file(tensors, damaged / "model.safetensors")
    settings = set_up(tmp_path / "out", damaged, begin_with=GOOD)
    before, now = Output(proved.output), Output(settings.output)
    now.proof.mkdir()
    for old, new in ((NONE, NONE), (SUFFIX, SUFFIX), (HEAD, FROM)):
        if part(before, old).exists():
            shutil.copy(part(before, old), part(now, new))
    lines: list[str] = []
    proof.run(settings, lines.append)
    assert lines == ["proof: new head: the engine starts"]
    report = report_of(settings)
    new, old = (report["results"][name][GREEDY]["tokens_per_step"] for name in (HEAD, FROM))
    assert 1 <= new < old
    assert report["kept"] == FROM
    spec = report["speculative_config"]
    assert spec["model"] == str(GOOD)
    assert serve_words(settings, spec)[-1] == json.dumps(spec)
    assert report["same_texts"][HEAD][GREEDY] == COUNT


def test_an_engine_that_fails_ends_the_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = set_up(tmp_path / "out", GOOD)
    monkeypatch.setattr(proof, "MEASURE", "tests.training.nothing")
    with pytest.raises(SystemExit) as end:
        proof.run(settings, lambda _: None)
    assert end.value.code == 1
    assert not proof.is_done(settings)
