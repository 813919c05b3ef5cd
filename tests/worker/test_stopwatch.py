"""A stopwatch counts what a step takes, and not what PyTorch compiles in it."""

from __future__ import annotations

import time
from typing import Any

import torch

from vllm_ascend_spec.worker.stopwatch import Stopwatch


def test_what_pytorch_compiles_in_a_step_is_not_counted() -> None:
    """On a CPU the first request that samples waits for vLLM's sampler to be compiled."""
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
