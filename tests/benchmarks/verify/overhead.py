"""Measure what a call costs before any kernel runs: argument checks and random numbers."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch

from tests.benchmarks.verify.cases import (
    KINDS,
    NUM_DRAFTS,
    VerifyBatch,
    VerifyCase,
    make_batch,
)
from tests.benchmarks.verify.peers import our_call
from tests.benchmarks.verify.timing import CpuTimer, Timer
from vllm_ascend_spec.bench.stats import Summary, paired_ratio

# Greedy is the shortest call, so checks weigh most there; the other one has many arguments.
OVERHEAD_KINDS = ("greedy", "top-k-top-p")
REPEATS = 100


@contextmanager
def checks_alone(kind: str) -> Iterator[None]:
    """Make the op check its arguments and find its backend, but run no kernel."""
    name = "verify_greedy" if KINDS[kind].temperature == 0 else "verify_sample"
    module = importlib.import_module(f"vllm_ascend_spec.ops.{name}")
    stock = module.OP

    def backend(*which: Any) -> Any:
        stock.backend(*which)
        return lambda *args, **kwargs: None

    vars(module)["OP"] = SimpleNamespace(backend=backend)
    try:
        yield
    finally:
        vars(module)["OP"] = stock


def measure_overhead(
    case: VerifyCase,
    backend: str,
    dtype: torch.dtype,
    device: torch.device,
    *,
    rounds: int,
    timer: Timer,
) -> dict[str, Any]:
    """Return the times of the checks, the uniforms and the whole call, in microseconds.

    Checks and uniforms are timed on the host's clock, the whole call with ``timer``.
    """
    batch = make_batch(case, dtype, device)
    whole, host = our_call(case.kind, batch, backend), CpuTimer()
    whole()
    seconds: dict[str, list[float]] = {"checks": [], "uniforms": [], "whole": []}
    for _ in range(rounds):
        with checks_alone(case.kind):
            seconds["checks"].append(host.seconds([whole], REPEATS))
        seconds["uniforms"].append(host.seconds([lambda: _draw(batch)], REPEATS))
        seconds["whole"].append(timer.seconds([whole], REPEATS))
    return {
        **case.as_dict(),
        "backend": backend,
        "microseconds": {
            name: Summary.of([1e6 * value for value in values], digits=2).as_dict()
            for name, values in seconds.items()
        },
        "checks_share": paired_ratio(seconds["checks"], seconds["whole"]).as_dict(),
    }


def _draw(batch: VerifyBatch) -> Any:
    """Draw as the verifier does for requests without a seed."""
    num_reqs = len(batch.temperature)
    options: Any = {"dtype": torch.float64, "device": batch.logits.device}
    return torch.rand(NUM_DRAFTS * num_reqs, **options), torch.rand(num_reqs, **options)
