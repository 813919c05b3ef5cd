"""Seeded requests whose token is thrown away, on vLLM's runners below our mixin."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from vllm.v1.worker.cpu_model_runner import CPUModelRunner
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from tests.marks import requires_cpu_build
from vllm_ascend_spec.worker.runner import SpecRunnerMixin
from vllm_ascend_spec.worker.seeded_generators import KeepGeneratorsMixin

pytestmark = requires_cpu_build

BOOKKEEPING = (None, None, None, None, 0)
STOCK = [CPUModelRunner, GPUModelRunner]


class PastTheRewindError(Exception):
    """The stock bookkeeping got past the lines that rewind."""


class DeviceGenerator(torch.Generator):
    """A generator with an offset, as those of a GPU or an NPU have; it notes how it is set."""

    offsets: list[int]

    def get_offset(self) -> int:
        return 100

    def set_offset(self, offset: int) -> None:
        self.offsets.append(offset)


class Batch:
    """The part of vLLM's input batch that sampling and rewinding look at."""

    num_reqs = 3
    sampling_metadata = None

    def __init__(self, *seeded: int, kind: type[torch.Generator] = torch.Generator) -> None:
        self.generators = {index: kind().manual_seed(index) for index in seeded}

    def update_async_output_token_ids(self) -> None:
        return None

    @property
    def req_ids(self) -> list[str]:
        raise PastTheRewindError


def make_runner(stock: type, batch: Batch, *discarded: int, ours: bool = True) -> Any:
    """Return a runner that has just enough to sample and to keep books."""
    mask = np.zeros(5, dtype=bool)
    mask[list(discarded)] = True
    # Rows past the batch are stale and must not count.
    mask[3:] = True

    def sampler(**_: Any) -> list[float]:
        return [torch.rand(1, generator=g).item() for g in batch.generators.values()]

    cls = type("Runner", (KeepGeneratorsMixin, stock), {}) if ours else stock
    runner: Any = object.__new__(cls)
    vars(runner).update(
        input_batch=batch, discard_request_mask=SimpleNamespace(np=mask), sampler=sampler
    )
    return runner


def keep_books(runner: Any) -> None:
    with pytest.raises(PastTheRewindError):
        runner._bookkeeping_sync(*BOOKKEEPING)


def test_every_runner_of_ours_keeps_generators() -> None:
    assert issubclass(SpecRunnerMixin, KeepGeneratorsMixin)


@pytest.mark.parametrize("stock", STOCK)
def test_stock_fault_and_override_for_generators_without_an_offset(stock: type) -> None:
    batch = Batch(0, 2)
    with pytest.raises(RuntimeError, match="offset"):
        make_runner(stock, batch, 2, ours=False)._bookkeeping_sync(*BOOKKEEPING)
    before = dict(batch.generators)
    keep_books(make_runner(stock, batch, 2))
    assert batch.generators == before


@pytest.mark.parametrize("stock", STOCK)
def test_stock_fault_and_override_for_generators_with_an_offset(
    stock: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets: list[int] = []
    monkeypatch.setattr(DeviceGenerator, "offsets", offsets, raising=False)
    batch = Batch(0, 2, kind=DeviceGenerator)
    keep_books(make_runner(stock, batch, 2, ours=False))
    assert offsets == [96]  # a fixed 4 back, whatever was drawn
    keep_books(make_runner(stock, batch, 2))
    assert offsets == [96]


@pytest.mark.parametrize("stock", STOCK)
def test_only_discarded_requests_are_rewound(stock: type) -> None:
    runner = make_runner(stock, Batch(0, 2), 1, 2)
    first, second = runner._sample(None, None), runner._sample(None, None)
    assert first[0] != second[0]
    assert first[1] == second[1]


@pytest.mark.parametrize("stock", STOCK)
def test_without_the_override_a_discarded_draw_is_lost(stock: type) -> None:
    runner = make_runner(stock, Batch(2), 2, ours=False)
    assert runner._sample(None, None) != runner._sample(None, None)


@pytest.mark.parametrize("seeded", [(), (0, 1, 2)])
def test_batches_without_discarded_seeds_pass_through(seeded: tuple[int, ...]) -> None:
    discarded = () if seeded else (1,)
    runner = make_runner(CPUModelRunner, Batch(*seeded), *discarded)
    assert runner.discarded_generators() == {}
    keep_books(runner)
