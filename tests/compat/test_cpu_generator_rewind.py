"""Seeded requests whose token is thrown away, on the CPU runner."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from vllm.v1.worker.cpu_model_runner import CPUModelRunner

from tests.compat.conftest import TakeOut
from tests.conftest import requires_cpu_build
from vllm_ascend_spec.compat import cpu_generator_rewind as mend

pytestmark = requires_cpu_build

BOOKKEEPING = (None, None, None, None, 0)


class PastTheRewindError(Exception):
    """The stock bookkeeping got past the lines that rewind."""


class Batch:
    """The part of vLLM's input batch that sampling and rewinding look at."""

    num_reqs = 3
    sampling_metadata = None

    def __init__(self, *seeded: int) -> None:
        self.generators = {index: torch.Generator().manual_seed(index) for index in seeded}

    def update_async_output_token_ids(self) -> None:
        return None

    @property
    def req_ids(self) -> list[str]:
        raise PastTheRewindError


def make_runner(batch: Batch, *discarded: int) -> Any:
    """Return a runner that has just enough to sample and to keep books."""
    mask = np.zeros(5, dtype=bool)
    mask[list(discarded)] = True
    # Rows past the batch are stale and must not count.
    mask[3:] = True

    def sampler(**_: Any) -> list[float]:
        return [torch.rand(1, generator=g).item() for g in batch.generators.values()]

    return SimpleNamespace(
        input_batch=batch, discard_request_mask=SimpleNamespace(np=mask), sampler=sampler
    )


def test_stock_fault_and_mend(take_out: TakeOut) -> None:
    take_out(mend)
    batch = Batch(0, 2)
    runner = make_runner(batch, 2)
    with pytest.raises(RuntimeError, match="offset"):
        CPUModelRunner._bookkeeping_sync(runner, *BOOKKEEPING)
    mend.apply()
    before = dict(batch.generators)
    with pytest.raises(PastTheRewindError):
        CPUModelRunner._bookkeeping_sync(runner, *BOOKKEEPING)
    assert batch.generators == before


def test_only_discarded_requests_are_rewound(take_out: TakeOut) -> None:
    take_out(mend)
    mend.apply()
    batch = Batch(0, 2)
    runner = make_runner(batch, 1, 2)
    first = CPUModelRunner._sample(runner, None, None)
    second = CPUModelRunner._sample(runner, None, None)
    assert first[0] != second[0]
    assert first[1] == second[1]


def test_without_the_mend_a_discarded_draw_is_lost(take_out: TakeOut) -> None:
    take_out(mend)
    runner = make_runner(Batch(2), 2)
    assert CPUModelRunner._sample(runner, None, None) != CPUModelRunner._sample(runner, None, None)


@pytest.mark.parametrize("seeded", [(), (0, 1, 2)])
def test_batches_without_discarded_seeds_pass_through(
    take_out: TakeOut, seeded: tuple[int, ...]
) -> None:
    take_out(mend)
    mend.apply()
    discarded = () if seeded else (1,)
    runner = make_runner(Batch(*seeded), *discarded)
    assert mend.discarded_generators(runner) == {}
    with pytest.raises(PastTheRewindError):
        CPUModelRunner._bookkeeping_sync(runner, *BOOKKEEPING)


def test_reverting_leaves_nothing_on_the_class(take_out: TakeOut) -> None:
    take_out(mend)
    before = dict(vars(CPUModelRunner))
    mend.apply()
    mend.revert()
    assert dict(vars(CPUModelRunner)) == before
