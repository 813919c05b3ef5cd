"""What a runner reports of each step, over a fake for vLLM's choice of a graph."""

from __future__ import annotations

import logging
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from vllm.compilation.cuda_graph import CUDAGraphStat
from vllm.config import CUDAGraphMode
from vllm.forward_context import BatchDescriptor

from vllm_ascend_spec import log
from vllm_ascend_spec.step_report import OTHER_K, PROMPTS, WIDE, StepReport
from vllm_ascend_spec.worker import stopwatch
from vllm_ascend_spec.worker.step_reports import StepReportsMixin

STOCK_STAT = CUDAGraphStat(12, 16, 4, "NONE")


class Stock:
    """Chooses the graph that a test wants."""

    mode = CUDAGraphMode.FULL
    stat: CUDAGraphStat | None = STOCK_STAT

    def execute_model(self, scheduler_output: Any) -> str:
        self._determine_batch_execution_and_padding(force_uniform_decode=True)
        return "vLLM's"

    def _determine_batch_execution_and_padding(self, **_: Any) -> Any:
        return self.mode, BatchDescriptor(32), False, None, self.stat


class Runner(StepReportsMixin, Stock):
    """Two requests that decode and one that may still read its prompt."""

    uniform_decode_query_len = 4

    def __init__(self, mode: CUDAGraphMode, computed: int = 9) -> None:
        self.mode = mode
        self.compilation_config = SimpleNamespace(
            cudagraph_mode=CUDAGraphMode.FULL_DECODE_ONLY, max_cudagraph_capture_size=16
        )
        self.input_batch = SimpleNamespace(
            num_computed_tokens_cpu=np.array([9, 9, computed, 0]),
            num_prompt_tokens=np.array([5, 5, 5, 5]),
        )

    def report(self, width: int = 4) -> StepReport:
        """Return the report of a step of three requests, but for its times."""
        report = StepReport.parse(self.step(width)[-1].runtime_mode)
        report.step_us = 0
        return report

    def step(self, width: int = 4, **more: Any) -> Any:
        """Return what comes of a step of three requests."""
        return self._determine_batch_execution_and_padding(
            num_tokens=3 * width, num_reqs=3, max_num_scheduled_tokens=np.int32(width), **more
        )


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """Keep what is logged."""
    lines: list[tuple[int, str]] = []
    module = "vllm_ascend_spec.worker.step_reports.log_once"
    monkeypatch.setattr(module, lambda level, line: lines.append((level, line)))
    return lines


def test_a_replayed_step_says_its_padding(told: list[Any]) -> None:
    mode, descriptor, should_split, across, stat = Runner(CUDAGraphMode.FULL).step()
    assert (mode, descriptor.num_tokens) == (CUDAGraphMode.FULL, 32)
    assert (should_split, across) == (False, None)
    assert (stat.num_unpadded_tokens, stat.num_padded_tokens, stat.num_paddings) == (12, 32, 20)
    assert StepReport.parse(stat.runtime_mode) == StepReport(graph="FULL", batch_k=3)
    assert told == []


@pytest.mark.parametrize(
    ("computed", "width", "level", "reason"),
    [
        (9, 8, logging.INFO, PROMPTS),
        (4, 4, logging.INFO, PROMPTS),
        (9, 2, logging.WARNING, OTHER_K),
    ],
)
def test_a_step_without_a_graph_says_why(
    computed: int, width: int, level: int, reason: str, told: list[tuple[int, str]]
) -> None:
    assert Runner(CUDAGraphMode.NONE, computed).report(width).no_graph_reason == reason
    assert [line[0] for line in told] == [level]


@pytest.mark.parametrize(
    ("target", "draft", "is_told"),
    [("FULL", "FULL", False), ("FULL", "NONE", True), ("NONE", "NONE", False), ("FULL", "", False)],
)
def test_a_step_says_what_the_draft_before_it_replayed(
    target: str, draft: str, is_told: bool, told: list[tuple[int, str]]
) -> None:
    runner = Runner(CUDAGraphMode[target])
    runner.step()
    told.clear()
    runner.mode = CUDAGraphMode.FULL
    runner.drafter = SimpleNamespace(last_graph=draft)
    assert runner.report() == StepReport(graph="FULL", batch_k=3, draft_graph=draft)
    assert [level for level, _ in told] == [logging.WARNING] * is_told
    # Once for each draft.
    assert runner.report() == StepReport(graph="FULL", batch_k=3)


def test_a_wide_step_says_so() -> None:
    runner = Runner(CUDAGraphMode.NONE)
    runner.compilation_config.max_cudagraph_capture_size = 8
    assert runner.report() == StepReport(graph="NONE", batch_k=3, no_graph_reason=WIDE)


@pytest.mark.parametrize("is_uniform", [True, False])
def test_dummy_runs_are_no_steps(is_uniform: bool) -> None:
    assert Runner(CUDAGraphMode.NONE).step(force_uniform_decode=is_uniform)[-1] is STOCK_STAT


@pytest.mark.parametrize("stat", [STOCK_STAT, None])
def test_an_engine_without_graphs_misses_none(stat: CUDAGraphStat | None, told: list[Any]) -> None:
    """vLLM describes its steps only if it is asked to."""
    runner = Runner(CUDAGraphMode.NONE)
    runner.compilation_config.cudagraph_mode = CUDAGraphMode.NONE
    runner.stat = stat
    found = runner.step()[-1]
    assert StepReport.parse(found.runtime_mode) == StepReport(graph="NONE" if stat else "")
    sizes = found.num_unpadded_tokens, found.num_padded_tokens, found.num_paddings
    assert sizes == ((12, 16, 4) if stat else (0, 0, 0))
    assert told == []


def test_a_step_reports_what_the_one_before_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock takes a second here; a dummy run reports nothing and keeps all."""
    seconds = count()
    fake = SimpleNamespace(perf_counter=lambda: float(next(seconds)))
    monkeypatch.setattr(stopwatch, "time", fake)
    runner = Runner(CUDAGraphMode.FULL)
    assert runner.execute_model("scheduled") == "vLLM's"
    with runner.watches.step, runner.watches.verification:
        pass
    with runner.watches.drafting:
        pass
    report = StepReport.parse(runner.step()[-1].runtime_mode)
    # A second each, but for the one with another inside.
    times = report.step_us, report.verification_us, report.drafting_us
    assert times == (1_000_000 + 3_000_000, 1_000_000, 1_000_000)
    report = StepReport.parse(runner.step()[-1].runtime_mode)
    assert (report.step_us, report.verification_us, report.drafting_us) == (0, 0, 0)


def test_each_reason_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    logger = logging.getLogger(log.PARENT)
    monkeypatch.setattr(logger, "log", lambda level, line: lines.append(line))
    log.log_once.cache_clear()
    runner = Runner(CUDAGraphMode.NONE)
    for _ in range(3):
        runner.step(8)
        runner.step(2)
    assert len(lines) == 2
    assert all("vllm:spec_decode_graph_steps" in line for line in lines)
