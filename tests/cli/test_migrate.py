"""``vllm-ascend-spec migrate``: commands, scripts and YAML files."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from vllm_ascend_spec.cli.main import main

OLD = "vllm serve t --speculative-model [ngram] --num-speculative-tokens 5 --use-v2-block-manager"
NEW = """vllm serve t --speculative-config '{"method": "ngram", "num_speculative_tokens": 5}'"""
NOTE = "note: --use-v2-block-manager has no effect any more, left out\n"


@pytest.mark.parametrize("words", [OLD.split(), [OLD]], ids=["words", "one text"])
def test_a_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "--", *words]) == 0
    assert capsys.readouterr() == (f"{NEW}\n", NOTE)


def test_a_command_that_is_new_already(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "--", "vllm", "serve", "my model"]) == 0
    text, notes = capsys.readouterr()
    assert text == "vllm serve 'my model'\n"
    assert notes == "note: no old options of speculation in it, nothing changed\n"


def test_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "start.sh"
    script.write_text(f"#!/bin/bash\n{OLD}\n")
    assert main(["migrate", str(script)]) == 0
    assert capsys.readouterr() == (f"#!/bin/bash\n{NEW}\n", NOTE)
    assert script.read_text() == f"#!/bin/bash\n{OLD}\n"
    assert main(["migrate", "--write", str(script)]) == 0
    assert capsys.readouterr() == ("", NOTE)
    assert script.read_text() == f"#!/bin/bash\n{NEW}\n"
    config = tmp_path / "pod.yaml"
    config.write_text(f"command: {OLD.split()}\n")
    assert main(["migrate", str(config)]) == 0
    assert capsys.readouterr().out.startswith(
        "command: ['vllm', 'serve', 't', --speculative-config"
    )


@pytest.mark.parametrize("words", [[], ["-"]])
def test_standard_input(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{OLD}\n"))
    assert main(["migrate", *words]) == 0
    assert capsys.readouterr().out == f"{NEW}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no-such.sh"], "FILE='no-such.sh': No such file or directory; a command has to stand"),
        (["--write", "-"], "--write=True: is for a file"),
        (["--write", "--", "vllm", "serve"], "--write=True: is for a file"),
        (["--", *OLD.split(), "--spec-method", "ngram"], "--speculative-model='[ngram]': contra"),
    ],
)
def test_errors(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", *words]) == 2
    text, error = capsys.readouterr()
    assert text == ""
    assert error.startswith(f"vllm-ascend-spec migrate: error: {message}")


def test_a_file_that_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.sh"
    path.write_bytes(b"\xff\xfe\x00")
    assert main(["migrate", str(path)]) == 2
    assert "is no text" in capsys.readouterr().err
