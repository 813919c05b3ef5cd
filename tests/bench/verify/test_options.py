"""The options of ``python -m tests.benchmarks verify``."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.benchmarks.__main__ import main
from tests.benchmarks.verify import benchmark, options, report, timing
from tests.benchmarks.verify.cases import KINDS

TINY = ["--vocab", "50", "--batch", "2", "--rounds", "1", "--backend", "reference"]

ENVIRONMENT = ("KINETO_LOG_LEVEL", "VLLM_LOGGING_LEVEL", "OMP_NUM_THREADS")


@pytest.fixture(autouse=True)
def environment(monkeypatch) -> None:
    """Let nothing that the command sets outlive a test."""
    for name in ENVIRONMENT:
        monkeypatch.setenv(name, "1")
        monkeypatch.delenv(name)


def plan_of(*arguments: str) -> Any:
    parser = argparse.ArgumentParser()
    options.add_arguments(parser)
    return options.make_plan(parser.parse_args(arguments))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kinds", "greedy,random"], ["--kinds='random'", "top-k-top-p"]),
        (["--vocab", "many"], ["--vocab", "list of numbers"]),
        (["--vocab", "0"], ["--vocab", "1 or more"]),
        (["--batch", "8,"], ["--batch", "list of numbers"]),
        (["--batch", "-1"], ["--batch", "1 or more"]),
        (["--backend", "fast"], ["--backend='fast'", "reference"]),
        (["--acceptance", "some"], ["--acceptance", "all, mixed"]),
        (["--rounds", "0"], ["--rounds=0", "1 or more"]),
        (["--threads", "0"], ["--threads=0", "valid: 1 to"]),
        (["--threads", "100000"], ["--threads=100000", "valid: 1 to"]),
        (["--dtype", "float64"], ["--dtype", "float32, bfloat16, float16"]),
        (["--device", "npu"], ["--device='npu'", "cpu, cuda"]),
        (["--limit-s", "0"], ["--limit-s", "more than 0"]),
        (["--limit-s", "nan"], ["--limit-s", "more than 0"]),
        (["--output", "picture.png"], ["--output", ".json"]),
        (["--record", "nowhere.json"], ["--record", "cannot be read"]),
    ],
)
def test_bad_options_are_one_message(arguments: list[str], words: list[str], capsys) -> None:
    assert main(["verify", *arguments]) == 2
    error = capsys.readouterr().err
    for word in words:
        assert word in error
    assert len(error.splitlines()) == 1


def test_cuda_without_a_gpu_is_one_message(monkeypatch, capsys) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["verify", "--device", "cuda"]) == 2
    assert "PyTorch finds no CUDA device here; valid: cpu" in capsys.readouterr().err


def test_defaults() -> None:
    plan = plan_of()
    assert plan == benchmark.VerifyBenchConfig()
    assert plan.kinds == tuple(KINDS)
    assert ",".join(KINDS) == options.KIND_LIST
    assert (plan.vocabs, plan.batches) == ((32_000, 151_936), (1, 8, 32))


def test_defaults_on_cuda(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    plan = plan_of("--device", "cuda")
    assert (plan.vocabs, plan.batches) == ((151_936,), (1, 8, 64, 256))


def test_quick_gives_way_to_what_is_said() -> None:
    plan = plan_of("--quick", "--batch", "4")
    assert (plan.vocabs, plan.batches, plan.rounds) == ((32_000,), (4,), 3)
    assert plan_of("--quick", "--rounds", "5").rounds == 5


def test_cold() -> None:
    assert plan_of("--cold").cold
    assert not plan_of().cold


def test_lists() -> None:
    plan = plan_of("--kinds", "block,plain", "--acceptance", "mixed", "--backend", "cpu,reference")
    assert plan.kinds == ("block", "plain")
    assert plan.acceptances == ("mixed",)
    assert plan.backends == ("cpu", "reference")


def test_record_picture_and_tables(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(timing, "MIN_SAMPLE_S", 0.0)
    output = tmp_path / "new" / "record.json"
    arguments = [*TINY, "--kinds", "greedy,block", "--output", str(output), "--markdown"]
    assert main(["verify", *arguments]) == 0
    record = json.loads(output.read_text())
    assert [row["kind"] for row in record["results"]] == ["greedy", "block", "block"]
    printed = capsys.readouterr()
    assert f"record: {output}" in printed.err
    assert "no picture" in printed.err or output.with_suffix(".png").is_file()
    assert printed.out.startswith("| case |")
    # An earlier record is reported as it was.
    assert main(["verify", "--record", str(output)]) == 0
    assert capsys.readouterr().out == printed.out


def test_without_output_the_record_is_printed(monkeypatch, capsys) -> None:
    monkeypatch.setattr(benchmark, "run", lambda plan, tell: {"benchmark": "verify"})
    assert main(["verify", *TINY]) == 0
    assert json.loads(capsys.readouterr().out) == {"benchmark": "verify"}


def test_a_missed_aim_is_no_failure(tmp_path: Path, monkeypatch) -> None:
    missed = {"benchmark": "verify", "summary": {"aims": [{"met": False}]}}
    monkeypatch.setattr(benchmark, "run", lambda plan, tell: missed)
    monkeypatch.setattr(report, "draw", lambda record, path: "")
    assert main(["verify", *TINY, "--output", str(tmp_path / "x.json")]) == 0


@pytest.mark.parametrize("text", ["[]", '{"benchmark": "serve"}'])
def test_the_record_of_something_else_is_refused(text: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    assert main(["verify", "--record", str(path)]) == 2
    assert "not a record of bench verify" in capsys.readouterr().err


def test_threads_of_libraries_are_set_before_they_are_loaded(monkeypatch) -> None:
    monkeypatch.setattr(benchmark, "run", lambda plan, tell: {})
    assert main(["verify", *TINY, "--threads", "1"]) == 0
    assert os.environ["OMP_NUM_THREADS"] == "1"
