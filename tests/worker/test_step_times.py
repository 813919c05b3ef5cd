"""Where a step's time goes is said in the next one, over a fake for vLLM's runner."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.compilation.cuda_graph import CUDAGraphStat

from vllm_ascend_spec.step_text import Times, split
from vllm_ascend_spec.worker import step_times
from vllm_ascend_spec.worker.step_times import StepTimesMixin, Stopwatch


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Let a second pass whenever somebody looks."""
    seconds = count()
    fake = SimpleNamespace(perf_counter=lambda: float(next(seconds)))
    monkeypatch.setattr(step_times, "time", fake)
    return seconds


class Stock:
    """Says what a test wants of a step's graph."""

    said: Any = None

    def execute_model(self, scheduler_output: Any) -> str:
        self._determine_batch_execution_and_padding()
        return "vLLM's"

    def _determine_batch_execution_and_padding(self, **_: Any) -> Any:
        return "a graph", "its batch", self.said


class Runner(StepTimesMixin, Stock):
    """Both, in the order that the docstring asks for."""

    def said_of(self, **given: Any) -> Any:
        """Return what is said of a step's graph."""
        return self._determine_batch_execution_and_padding(**given)[-1]


def test_a_step_says_what_the_one_before_it_took() -> None:
    runner = Runner()
    assert runner.execute_model("scheduled") == "vLLM's"
    with runner.watches.step, runner.watches.verification:
        pass
    with runner.watches.drafting:
        pass
    _, parts = split(runner.said_of().runtime_mode)
    # A second each, but for the one with another inside.
    assert Times.of(parts) == Times(1_000_000 + 3_000_000, 1_000_000, 1_000_000)
    _, parts = split(runner.said_of().runtime_mode)
    assert Times.of(parts) == Times(0, 0, 0)


def test_it_stands_behind_what_is_said_of_a_graph() -> None:
    runner = Runner()
    runner.said = CUDAGraphStat(12, 32, 20, "FULL, K=3")
    said = runner.said_of()
    assert (said.num_unpadded_tokens, said.num_padded_tokens, said.num_paddings) == (12, 32, 20)
    assert split(said.runtime_mode)[0] == "FULL, K=3"


def test_dummy_runs_say_nothing_and_take_nothing_away() -> None:
    runner = Runner()
    with runner.watches.step:
        pass
    assert runner.said_of(force_uniform_decode=True) is None
    assert Times.of(split(runner.said_of().runtime_mode)[1]) == Times(1_000_000, 0, 0)


def test_what_pytorch_compiles_in_a_step_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU the first request that samples waits for vLLM's sampler to be compiled."""
    monkeypatch.setattr(step_times, "time", time)
    whole, part = Stopwatch(), Stopwatch()

    @torch.compile(backend=slow)
    def sample(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    for _ in range(2):
        with whole, part:
            time.sleep(0.05)
            sample(torch.zeros(3))
        assert 0.05 <= 1e-6 * part.take() <= 1e-6 * whole.take() < SLOW_S


SLOW_S = 1.0


def slow(module: torch.fx.GraphModule, inputs: Any) -> Any:
    """Compile nothing, in a second."""
    time.sleep(SLOW_S)
    return module.forward
