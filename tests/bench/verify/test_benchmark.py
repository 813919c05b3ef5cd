"""``benchmarks verify`` as a whole, at sizes that take no time."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.benchmarks.verify import benchmark, cases, overhead, timing
from tests.benchmarks.verify.cases import KINDS, VerifyCase
from tests.benchmarks.verify.summary import BLOCK_KINDS, SEEDED_KINDS
from tests.benchmarks.verify.timing import Samples


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    """Return the record of all kinds with the backend that is always there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "MIN_SAMPLE_S", 0.0)
        patch.setattr(overhead, "REPEATS", 2)
        plan = benchmark.VerifyBenchConfig(
            vocabs=(64,), batches=(1, 3), backends=("reference",), rounds=2
        )
        return benchmark.run(plan, print)


def test_record_is_json_and_says_where_it_comes_from(record: dict[str, Any]) -> None:
    assert json.loads(json.dumps(record))["benchmark"] == "verify"
    assert {"argv", "git", "versions", "machine"} <= record["provenance"].keys()
    assert record["device"]["type"] == "cpu"
    assert record["plan"]["num_drafts"] == 4
    assert record["plan"]["threads"] == 1
    assert "cpu_expand_kernel" in record["peer_note"]
    assert "32 requests together" in record["method"]


def test_every_case_is_there(record: dict[str, Any]) -> None:
    found = [(row["kind"], row["batch"], row["acceptance"]) for row in record["results"]]
    expected = [
        (kind, batch, acceptance)
        for batch in (1, 3)
        for kind in KINDS
        for acceptance in KINDS[kind].acceptances
    ]
    assert found == expected


def test_every_row_has_its_peers(record: dict[str, Any]) -> None:
    for row in record["results"]:
        names = {"reference", "read: sum", "read: max"}
        names |= {"torch", "vllm"} if KINDS[row["kind"]].rule != "block" else set()
        names |= {"reference, token rule"} if KINDS[row["kind"]].rule != "token" else set()
        names |= {"argmax"} if row["kind"] == "greedy" else set()
        assert set(row["milliseconds"]) == names
        assert not row["skipped"]
        ratios = row["ratios"]["reference"]
        assert set(ratios) == {
            "greedy": {"vllm", "torch", "argmax"},
            **{kind: {"token rule"} for kind in BLOCK_KINDS},
            **{kind: {"vllm", "torch", "token rule"} for kind in SEEDED_KINDS},
        }.get(row["kind"], {"vllm", "torch"})


def test_batches_are_many_where_drafts_are_rejected_by_chance(record: dict[str, Any]) -> None:
    for row in record["results"]:
        many = {1: 32, 3: 11}[row["batch"]]
        assert row["batches"] == (many if row["acceptance"] == "mixed" else 1)


def test_cold_takes_more_logits_than_caches_hold(monkeypatch) -> None:
    monkeypatch.setattr(cases, "COLD_BYTES", 7 * 4 * 5 * 64)
    monkeypatch.setattr(timing, "MIN_SAMPLE_S", 0.0)
    case = VerifyCase("plain", 64, 1)
    for cold, expected in ((False, 1), (True, 7)):
        plan = benchmark.VerifyBenchConfig(backends=("reference",), rounds=1, cold=cold)
        row = benchmark.run_case(case, plan, ("reference",), timing.CpuTimer())
        assert row["batches"] == expected
        assert row["tokens_per_request"]["reference"] == 5.0


def test_rows_that_are_not_read_have_no_bandwidth(record: dict[str, Any]) -> None:
    for row in record["results"]:
        assert (row["bandwidth"] is None) == (row["acceptance"] == "mixed")


def test_all_drafts_are_accepted_unless_it_is_said(record: dict[str, Any]) -> None:
    for row in record["results"]:
        if row["acceptance"] == "all":
            expected = KINDS[row["kind"]].num_drafts + 1
            assert row["tokens_per_request"]["reference"] == expected


def test_stock_and_eager_store_the_probabilities(record: dict[str, Any]) -> None:
    row = next(row for row in record["results"] if (row["kind"], row["batch"]) == ("top-p", 3))
    assert all(row["memory"][name]["vocab_sized"] for name in ("vllm", "torch", "reference"))
    assert "read: sum" not in row["memory"]
    greedy = next(row for row in record["results"] if row["kind"] == "greedy")
    assert greedy["memory"]["vllm"]["peak_bytes"] >= 4 * 64 * 4


def test_overhead_is_measured_at_batch_one(record: dict[str, Any]) -> None:
    found = [(entry["kind"], entry["batch"]) for entry in record["overhead"]]
    assert found == [("greedy", 1), ("top-k-top-p", 1)]


def test_summary_judges_every_aim(record: dict[str, Any]) -> None:
    measured = {
        (aim["kind"], aim["acceptance"])
        for aim in record["summary"]["aims"]
        if aim["value"] is not None
    }
    # Nothing here has a batch of eight.
    assert measured == {
        ("greedy", "all"),
        ("plain", "all"),
        ("top-p", "all"),
        ("block", "all"),
        ("block", "mixed"),
        ("block-sampled-drafts", "all"),
        ("block-sampled-drafts", "mixed"),
        *((kind, "all") for kind in SEEDED_KINDS),
    }


def row_with(monkeypatch: pytest.MonkeyPatch, seconds: dict[str, list[float]]) -> dict[str, Any]:
    """Return the row of a greedy case that took these times."""
    case = VerifyCase("greedy", 100, 2)
    monkeypatch.setattr(
        benchmark, "measure", lambda *args, **kwargs: Samples(seconds, {"x": "why"})
    )
    plan = benchmark.VerifyBenchConfig(backends=("reference",))
    return benchmark.run_case(case, plan, ("reference",), timing.CpuTimer())


def test_figures_follow_from_the_times(monkeypatch) -> None:
    times = {
        "reference": [1e-3, 2e-3, 1e-3],
        "vllm": [4e-3, 12e-3, 5e-3],
        "torch": [2e-3, 2e-3, 2e-3],
        "argmax": [4e-3, 4e-3, 4e-3],
        "read: sum": [1e-3, 1e-3, 1e-3],
        "read: max": [0.5e-3, 0.5e-3, 0.5e-3],
    }
    row = row_with(monkeypatch, times)
    ratios = row["ratios"]["reference"]
    assert ratios["vllm"] == {"median": 5.0, "low": 4.0, "high": 6.0}
    assert ratios["torch"] == {"median": 2.0, "low": 1.0, "high": 2.0}
    assert ratios["argmax"] == {"median": 0.25, "low": 0.25, "high": 0.5}
    assert row["milliseconds"]["vllm"] == {"median": 5.0, "low": 4.0, "high": 12.0}
    assert row["logits_bytes"] == 10 * 100 * 4
    # The faster of the two passes is what could be reached.
    assert row["read"]["by"] == "read: max"
    share = row["bandwidth"]["reference"]["share_of_read"]
    assert share == {"median": 0.5, "low": 0.25, "high": 0.5}
    assert row["skipped"] == {"x": "why"}


def test_a_backend_that_was_skipped_has_no_figures(monkeypatch) -> None:
    times = {name: [1e-3] for name in ("vllm", "read: sum", "read: max")}
    row = row_with(monkeypatch, times)
    assert row["ratios"] == {}
    assert row["bandwidth"] == {}
    assert set(row["tokens_per_request"]) == {"vllm"}


THREADS = """
import torch
from tests.benchmarks.verify import benchmark

seen = []
benchmark.run_case = lambda *args: seen.append(torch.get_num_threads()) or {}
benchmark._overheads = lambda *args: []
benchmark.summarise = lambda record: {}
benchmark.format_row = lambda *args: ""
benchmark.format_summary = lambda record: ""
before = torch.get_num_threads()
sizes = ("greedy",), (8,), (1,)
plan = benchmark.VerifyBenchConfig(*sizes, backends=("reference",), threads=before + 1)
benchmark.run(plan, print)
assert seen == [before + 1], seen
assert torch.get_num_threads() == before
"""


def test_threads_are_as_before_afterwards() -> None:
    """In a process of its own: once an engine has run in one, vLLM ignores set_num_threads."""
    result = subprocess.run(
        [sys.executable, "-c", THREADS], capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 0, result.stderr
