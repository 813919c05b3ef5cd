"""What ``bench sweep`` and ``bench accuracy`` refuse, before any engine starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.zoo import ZOO
from tests.zoo import ZOO_SPECS as SPECS
from tests.zoo import ZOO_TARGET as TARGET
from vllm_ascend_spec.bench import accuracy, sweep
from vllm_ascend_spec.cli.main import main

PROMPTS = str(ZOO / "sweep_prompts.jsonl")
MEDUSA = json.dumps({"method": "medusa", "model": SPECS["medusa"]["model"]})
EAGLE = json.dumps(SPECS["eagle"])


@pytest.fixture(autouse=True)
def _no_engine_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(plan: Any, tell: Any) -> None:
        pytest.fail("it was not refused")

    monkeypatch.setattr(sweep, "run", refuse)
    monkeypatch.setattr(accuracy, "run", refuse)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the one line that is said."""
    assert main(["bench", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--num-speculative-tokens", "3,5", "--speculative-config", MEDUSA], ["=5", "up to 4"]),
        (["--speculative-config", EAGLE, "--speculative-config", EAGLE], ["is there twice"]),
        (["--speculative-config", EAGLE, "--num-speculative-tokens", "1"], ["give one of the two"]),
        (["--speculative-config", "{oops"], ["--speculative-config", "not JSON"]),
        (["--speculative-config", "[1]"], ["--speculative-config", "a JSON object"]),
        (["--speculative-config", '{"method": "eagel"}'], ["eagel", "'eagle'"]),
        (["--speculative-config", '{"method": "ngram"}'], ["num_speculative_tokens"]),
        (["--num-speculative-tokens", "1,1"], ["--num-speculative-tokens", "each once"]),
        (["--concurrency", "0"], ["--concurrency", "1 and more"]),
        (["--concurrency", "1,17"], ['"code" has 16 prompts', "up to 16"]),
        (["--concurrency", "few"], ["--concurrency", "comma-separated"]),
        (["--temperatures", "nan"], ["--temperatures", "0 and more"]),
        (["--rounds", "0"], ["--rounds"]),
        (["--max-tokens", "0"], ["--max-tokens"]),
        (["--max-tokens", "500"], ["--prompts", "--max-model-len 512"]),
        (["--at-once", "0"], ["--at-once"]),
        (["--num-prompts", "-1"], ["--num-prompts"]),
        (["--kv-cache-mib", "0"], ["--kv-cache-mib"]),
        (["--categories", "poems"], ["poems", "code, docstrings"]),
        (["--prompts", "missing.jsonl"], ["missing.jsonl", "cannot be read", "lines like"]),
        (["--model", "/missing/model"], ["/missing/model"]),
        (["--html", "/dev/null/report.html"], ["--html", "cannot be written"]),
        (["--output", str(ZOO)], ["--output", "cannot be written"]),
        (["--record", PROMPTS, "--html", "x.html"], ["--record", "cannot be read"]),
        (["--record", PROMPTS], ["--record", "needs --html"]),
        (["--record", PROMPTS, "--categories", "code"], ["--categories", "no effect"]),
    ],
)
def test_a_sweep_that_cannot_be(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = arguments if "--model" in arguments else ["--model", TARGET, *arguments]
    given = given if "--prompts" in given else ["--prompts", PROMPTS, *given]
    given = arguments if "--record" in arguments else ["--concurrency", "1", *given]
    line = refused(capsys, "sweep", *given)
    for word in words:
        assert word in line


def test_a_record_of_something_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "record.json"
    path.write_text('{"benchmark": "serve"}')
    report = tmp_path / "report.html"
    line = refused(capsys, "sweep", "--record", str(path), "--html", str(report))
    assert "is not a record of bench sweep" in line
    assert not report.exists()


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"plan": []},
        {"plan": {"note": "", "temperatures": [], "prompts": {}}, "provenance": {}},
    ],
)
def test_a_record_of_another_shape(
    record: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, report = tmp_path / "record.json", tmp_path / "report.html"
    path.write_text(json.dumps({"benchmark": "sweep", **record}))
    line = refused(capsys, "sweep", "--record", str(path), "--html", str(report))
    assert "is not a record of this version's bench sweep" in line
    assert not report.exists()


@pytest.mark.parametrize(
    "option",
    [
        *("--speculative-config", "--num-speculative-tokens", "--prompts", "--categories"),
        *("--num-prompts", "--concurrency", "--temperatures", "--max-tokens", "--rounds"),
        *("--at-once", "--model", "--kv-cache-mib", "--max-model-len", "--output"),
        *("--dtype=bfloat16", "--compiled"),
    ],
)
def test_what_measures_has_no_effect_with_a_record(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [option] if option == "--compiled" or "=" in option else [option, "7"]
    if option == "--output":
        given = [option, str(tmp_path / "7")]
    report = ["--record", PROMPTS, "--html", str(tmp_path / "report.html")]
    line = refused(capsys, "sweep", *report, *given)
    assert f"{option.partition('=')[0]}=" in line
    assert "has no effect with --record" in line


def test_options_without_effect_are_named_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "sweep", "--record", PROMPTS, "--rounds", "9", "--at-once", "2")
    assert "--rounds, --at-once=" in line
    assert "have no effect with --record" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tasks", PROMPTS], ["line 1", '"expected" is missing']),
        (["--samples", "3"], ["--samples", "no effect"]),
        (["--temperatures", "0.8", "--samples", "0"], ["--samples"]),
        (["--tolerance", "2"], ["--tolerance", "0 to 1"]),
        (["--rounding", "-1"], ["--rounding"]),
        (["--concurrency", "0"], ["--concurrency"]),
        (["--max-tokens", "600"], ["--tasks", "--max-model-len 512"]),
        (["--lm-eval-path", "."], ["--lm-eval-path", "needs --lm-eval"]),
        (["--lm-eval", "gsm8k", "--samples", "2"], ["--samples", "whose tasks set it"]),
        (["--speculative-config", MEDUSA], ["num_speculative_tokens"]),
    ],
)
def test_a_comparison_that_cannot_be(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = arguments if "--tasks" in arguments else ["--tasks", str(ZOO / "tasks.jsonl")]
    if "--lm-eval" in arguments:
        given = []
    given = given if given is arguments else [*given, *arguments]
    line = refused(capsys, "accuracy", "--model", TARGET, *given)
    for word in words:
        assert word in line


def test_each_task_is_checked_with_its_own_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(accuracy, "run", lambda plan, tell: {"passed": len(plan.tasks) == 2})
    tasks = tmp_path / "tasks.jsonl"
    long = {"prompt": "x = 1\n" * 80, "expected": "x", "max_tokens": 1}
    for most, status in ((400, 0), (600, 2)):
        short = {"prompt": "x", "expected": "x", "max_tokens": most}
        tasks.write_text("".join(json.dumps(row) + "\n" for row in (long, short)))
        assert main(["bench", "accuracy", "--model", TARGET, "--tasks", str(tasks)]) == status
    assert "with 600 (its max_tokens) are more than --max-model-len 512" in capsys.readouterr().err
