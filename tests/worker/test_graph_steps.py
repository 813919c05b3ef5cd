"""What a runner says of each step's graph, over a fake for vLLM's choice of one."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from vllm.config import CUDAGraphMode
from vllm.forward_context import BatchDescriptor

from vllm_ascend_spec import log
from vllm_ascend_spec.graphs.step import PROMPTS, WIDE, GraphStep
from vllm_ascend_spec.worker.graph_steps import GraphStepsMixin

STOCK_STAT = object()


class Stock:
    """Chooses the graph that a test wants."""

    mode = CUDAGraphMode.FULL

    def _determine_batch_execution_and_padding(self, **_: Any) -> Any:
        return self.mode, BatchDescriptor(32), False, None, STOCK_STAT


class Runner(GraphStepsMixin, Stock):
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

    def step(self, width: int = 4, **more: Any) -> Any:
        """Return what comes of a step of three requests."""
        return self._determine_batch_execution_and_padding(
            num_tokens=3 * width, num_reqs=3, max_num_scheduled_tokens=np.int32(width), **more
        )


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """Keep what is logged."""
    lines: list[tuple[int, str]] = []
    module = "vllm_ascend_spec.worker.graph_steps.log_once"
    monkeypatch.setattr(module, lambda level, line: lines.append((level, line)))
    return lines


def test_a_replayed_step_says_its_padding(told: list[Any]) -> None:
    mode, descriptor, should_split, across, stat = Runner(CUDAGraphMode.FULL).step()
    assert (mode, descriptor.num_tokens) == (CUDAGraphMode.FULL, 32)
    assert (should_split, across) == (False, None)
    assert (stat.num_unpadded_tokens, stat.num_padded_tokens, stat.num_paddings) == (12, 32, 20)
    assert stat.runtime_mode == "FULL, K=3"
    assert told == []


@pytest.mark.parametrize(
    ("computed", "width", "level", "reason"),
    [(9, 8, logging.INFO, PROMPTS), (4, 4, logging.INFO, PROMPTS), (9, 2, logging.WARNING, "K=1")],
)
def test_a_step_without_a_graph_says_why(
    computed: int, width: int, level: int, reason: str, told: list[tuple[int, str]]
) -> None:
    *_, stat = Runner(CUDAGraphMode.NONE, computed).step(width)
    assert reason in stat.runtime_mode
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
    *_, stat = runner.step()
    assert GraphStep.parse(stat.runtime_mode) == GraphStep("FULL", 3, draft=draft)
    assert [level for level, _ in told] == [logging.WARNING] * is_told
    # Once for each draft.
    assert runner.step()[-1].runtime_mode == "FULL, K=3"


def test_a_wide_step_says_so() -> None:
    runner = Runner(CUDAGraphMode.NONE)
    runner.compilation_config.max_cudagraph_capture_size = 8
    assert runner.step()[-1].runtime_mode == f"NONE, K=3: {WIDE}"


@pytest.mark.parametrize("is_uniform", [True, False])
def test_dummy_runs_are_no_steps(is_uniform: bool) -> None:
    assert Runner(CUDAGraphMode.NONE).step(force_uniform_decode=is_uniform)[-1] is STOCK_STAT


def test_an_engine_without_graphs_misses_none() -> None:
    runner = Runner(CUDAGraphMode.NONE)
    runner.compilation_config.cudagraph_mode = CUDAGraphMode.NONE
    assert runner.step()[-1] is STOCK_STAT


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
