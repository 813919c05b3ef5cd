"""Copies of states between blocks of the prefix cache, without Triton."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from vllm.v1.worker import mamba_utils

from tests.marks import requires_cpu_build
from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches import cpu_state_copies as patch

pytestmark = requires_cpu_build

ROWS, WIDTH, STATE, BLOCK = 6, 8, 40, 4


class Cache:
    """One layer's two states, as vLLM cuts them out of pages, and two requests' block tables."""

    def __init__(self, *, by_channel: bool) -> None:
        torch.manual_seed(0)
        self.by_channel = by_channel
        split, page = ROWS * WIDTH * 2, ROWS * WIDTH * 2 + STATE * 4 + 16
        raw = torch.randint(0, 256, (12, page), dtype=torch.uint8)
        shape = (WIDTH, ROWS) if by_channel else (ROWS, WIDTH)
        self.inputs = raw[:, :split].view(torch.int16).view(12, *shape)
        self.states = raw[:, split:-16].view(torch.int32)
        self.table = torch.tensor([[3, 1, 4, 5, 9], [2, 6, 7, 8, 10]], dtype=torch.int32)
        self.page = page

    def by_row(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.transpose(1, 2) if self.by_channel else inputs

    def arguments(self) -> tuple[Any, ...]:
        """Return what both kernels are told of it."""
        numbers = [
            (self.inputs.data_ptr(), self.states.data_ptr()),
            (self.page, self.page),
            (2, 4),
            (1 if self.by_channel else WIDTH, STATE),
            (ROWS, 0),
            (0, 0),
            (WIDTH * self.by_channel, 0),
            (ROWS * 2 * self.by_channel, 0),
        ]
        table = torch.tensor([self.table.data_ptr()])
        return (table, self.table.stride(0), *map(torch.tensor, numbers))

    def after(self, request: int, source: int, accepted: int, target: int) -> Any:
        """Return both states of the cache once one request's were copied."""
        inputs, states = self.by_row(self.inputs).clone(), self.states.clone()
        blocks = self.table[request].tolist()
        kept = ROWS - accepted
        inputs[blocks[target]][:kept] = self.by_row(self.inputs)[blocks[source]][accepted:].clone()
        states[blocks[target]] = self.states[blocks[source + accepted]]
        return inputs, states


def int32(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def precopy(cache: Cache, target: torch.Tensor, source: torch.Tensor, bias: torch.Tensor) -> None:
    mamba_utils.precopy_mamba_align_fused_kernel[(2, 2, 16)](
        target,
        source,
        bias,
        *cache.arguments(),
        None,
        2,
        COPY_BLOCK_SIZE=1024,
        CONV_STATE_DIM_FIRST=cache.by_channel,
        HAS_IDX_MAPPING=False,
        TEMPORAL_TILES=16,
    )


def postprocess(cache: Cache, **given: torch.Tensor) -> torch.Tensor:
    """Return the counts of accepted tokens afterwards."""
    out = given["counts"].clone()
    mamba_utils.postprocess_mamba_fused_kernel[(2, 2, 16)](
        *(given[name] for name in ("counts", "columns", "scheduled", "computed", "drafts")),
        *cache.arguments(),
        out,
        None,
        2,
        block_size=BLOCK,
        COPY_BLOCK_SIZE=1024,
        CONV_STATE_DIM_FIRST=cache.by_channel,
        TEMPORAL_TILES=16,
    )
    return out


def assert_states(cache: Cache, expected: tuple[torch.Tensor, torch.Tensor]) -> None:
    assert torch.equal(cache.by_row(cache.inputs), expected[0])
    assert torch.equal(cache.states, expected[1])


def test_stock_fault_and_patch(take_out: TakeOut) -> None:
    take_out(patch)
    cache = Cache(by_channel=False)
    with pytest.raises(Exception, match=r"subscriptable|Triton|driver|active"):
        precopy(cache, int32(1, 2), int32(0, -1), int32(2, 0))
    patch.apply()
    precopy(cache, int32(1, 2), int32(0, -1), int32(2, 0))


@pytest.fixture(params=[False, True], ids=["by row", "by channel"])
def cache(request: pytest.FixtureRequest, take_out: TakeOut) -> Cache:
    take_out(patch)
    patch.apply()
    return Cache(by_channel=request.param)


def test_a_state_comes_to_the_block_that_is_written(cache: Cache) -> None:
    """The first request's; the second is new."""
    expected = cache.after(0, source=0, accepted=2, target=1)
    precopy(cache, int32(1, 2), int32(0, -1), int32(2, 0))
    assert_states(cache, expected)


def test_what_is_in_its_block_stays_there(cache: Cache) -> None:
    expected = cache.by_row(cache.inputs).clone(), cache.states.clone()
    precopy(cache, int32(1, 2), int32(1, 2), int32(1, 3))
    assert_states(cache, expected)


def test_the_end_of_a_block_is_kept(cache: Cache) -> None:
    """A request with 6 tokens and 3 drafts that were all accepted: 10 tokens; a block ends at 8.

    The other one has 5 tokens, and nothing was accepted.
    """
    expected = cache.after(0, source=2, accepted=1, target=1)
    counts = postprocess(
        cache,
        counts=int32(4, 1),
        columns=int32(2, 1),
        scheduled=int32(4, 3),
        computed=int32(6, 4),
        drafts=int32(3, 2),
    )
    assert_states(cache, expected)
    assert counts.tolist() == [4, 1]


def test_a_block_that_ends_in_the_one_that_was_written(cache: Cache) -> None:
    """Then the state has come there, and is no more after accepted drafts."""
    expected = cache.after(1, source=1, accepted=2, target=1)
    counts = postprocess(
        cache,
        counts=int32(1, 3),
        columns=int32(2, 1),
        scheduled=int32(1, 3),
        computed=int32(8, 5),
        drafts=int32(0, 2),
    )
    assert_states(cache, expected)
    assert counts.tolist() == [1, 1]
