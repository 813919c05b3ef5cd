"""``train`` without its phases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.train.inputs import PROMPTS, TARGET, Run
from vllm_ascend_spec.cli import serve, train
from vllm_ascend_spec.cli.main import main
from vllm_ascend_spec.training import requirements
from vllm_ascend_spec.training.settings import Settings


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in PROMPTS))
    return path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Take what the phases would be run with, instead of running them."""
    found: list[Settings] = []

    def run_phases(settings: Settings, *_: Any) -> int:
        found.append(settings)
        return 0

    monkeypatch.setattr(train, "run_phases", run_phases)
    monkeypatch.setattr(train, "conclude", lambda _: 0)
    monkeypatch.setattr(serve, "problem", lambda: None)
    monkeypatch.setattr(requirements, "missing", lambda: None)
    return found


@pytest.fixture
def run(prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the command with good options and those given."""

    def call(*words: str, model: str = TARGET, file: Path = prompts) -> tuple[int, str, str]:
        status = main(
            ["train", model, "--prompts", str(file), "--output", str(tmp_path / "out"), *words]
        )
        output = capsys.readouterr()
        return status, output.out, output.err

    return call
