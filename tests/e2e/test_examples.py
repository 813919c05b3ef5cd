"""The examples and the benchmarks run as the README says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.docs.person import COMPILES_ALL, ONE_THREAD, SMALL, environment, small
from tests.warm.programs import Programs
from tests.zoo import ZOO_SPECS

ROOT = Path(__file__).parents[2]
COMMAND = str(Path(sys.executable).with_name("vllm-ascend-spec"))


# What ``bench serve`` sets for its servers, and their imports have read.
OF_SERVERS = {"VLLM_LOGGING_LEVEL": "WARNING"}


@pytest.fixture(scope="module")
def bench() -> Iterator[tuple[list[str], dict[str, str]]]:
    """Return the words of ``vllm-ascend-spec`` and its variables; its servers are copies by day."""
    if COMPILES_ALL:
        yield [COMMAND], ONE_THREAD
        return
    given = SMALL | OF_SERVERS
    with closing(Programs(environment(**given))) as programs:
        yield ["-m", "tests.e2e.bench_in_copies"], given | programs.variables


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python, from nothing unless the variables have it copied."""
    result = subprocess.run(
        ["python", *arguments],
        cwd=ROOT,
        env=environment(**(variables or ONE_THREAD)),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    return result


def test_offline_example() -> None:
    """By day the demo below is what is compiled."""
    output = run("examples/offline_eagle.py", **small()).stdout
    assert "identical: 8 of 8" in output


def test_demo() -> None:
    output = run("examples/demo_serve.py", "--num-prompts", "3").stdout
    assert "identical: all 7 greedy answers" in output
    assert "tokens/step" in output


# By day tests/bench has what it is made of, and test_bench_serve below runs a whole benchmark.
@pytest.mark.nightly
def test_benchmarks_step(tmp_path: Path) -> None:
    """This environment is its own peer."""
    record_path = tmp_path / "step.json"
    arguments = ("--rounds", "1", "--max-tokens", "8", "--output", str(record_path))
    words = ("-m", "tests.benchmarks", "step", *arguments, "--peer-python", sys.executable)
    run(*words, **small())
    record = json.loads(record_path.read_text())
    after = record["results"]["our draft loop"]
    assert after["parts_ms"]["target forward"] > 0
    assert after["parts_ms"]["draft, all"] > 0
    assert after["tokens_per_engine_step"] > 1.5
    none = record["results"]["none"]
    assert "draft, all" not in none["parts_ms"]
    assert none["tokens_per_engine_step"] <= 1
    assert (none["rule"], after["rule"]) == (None, "token")
    theirs = record["results"][record["peer"]["name"]]
    assert theirs["tokens_per_engine_step"] == after["tokens_per_engine_step"]
    assert theirs["parts_ms"]["draft, all"] > 0
    assert record["peer"]["ours_to_peer"]["median"] > 0


@pytest.mark.nightly
def test_benchmarks_propose(tmp_path: Path) -> None:
    record_path = tmp_path / "propose.json"
    specs = [ZOO_SPECS["eagle"], ZOO_SPECS["ngram"]]
    given = [word for spec in specs for word in ("--speculative-config", json.dumps(spec))]
    few = ("--rounds", "1", "--max-tokens", "8", "--batches", "2")
    run("-m", "tests.benchmarks", "propose", *given, *few, "--output", str(record_path), **small())
    eagle, ngram = json.loads(record_path.read_text())["results"]
    assert (eagle["method"], ngram["method"]) == ("eagle", "ngram")
    assert 0 < eagle["model_ms"] < eagle["draft_ms"] < eagle["ms_per_step"]["median"]
    assert ngram["model_ms"] == 0 < ngram["draft_ms"]


def test_bench_serve(tmp_path: Path, bench: tuple[list[str], dict[str, str]]) -> None:
    record_path = tmp_path / "serve.json"
    command, variables = bench
    run(
        *(*command, "bench", "serve", "--modes", "eager", "--batches", "2"),
        *("--temperatures", "0", "--rounds", "1", "--num-prompts", "2", "--max-tokens", "64"),
        *("--output", str(record_path)),
        **variables,
    )
    (row,) = json.loads(record_path.read_text())["results"]
    assert row["identical"] == "2 of 2"
    assert row["acceptance"]["drafts"] > 0
    assert row["acceptance"]["rule"] == "token"
    assert row["speedup"]["median"] > 0
