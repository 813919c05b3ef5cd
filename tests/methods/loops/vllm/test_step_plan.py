"""The plan of draft steps against vLLM's kernel, which works them out one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.platforms import current_platform
from vllm.v1.spec_decode.utils import eagle_step_update_slot_mapping_and_metadata

from tests.marks import requires_cpu_build
from vllm_ascend_spec.methods.loops.vllm.step_plan import (
    PADDING_SLOT,
    StepPlan,
    plan_in_place,
    plan_steps,
)
from vllm_ascend_spec.patches import cpu_eagle_step_kernel

pytestmark = requires_cpu_build

Planner = Callable[..., StepPlan]


@pytest.fixture(scope="module", autouse=True)
def _working_kernel() -> Iterator[None]:
    """vLLM's kernel needs its patch on a CPU; leave that as it was."""
    current_platform.import_kernels()
    was_applied = bool(cpu_eagle_step_kernel._patches)
    cpu_eagle_step_kernel.apply()
    yield
    if not was_applied:
        cpu_eagle_step_kernel.revert()


def plan_one_by_one(
    positions: torch.Tensor,  # [num_reqs]
    seq_lens: torch.Tensor,  # [num_reqs]
    block_table: torch.Tensor,  # [num_reqs, max_blocks]
    block_size: int,
    max_model_len: int,
    num_steps: int,
) -> StepPlan:
    """Do the same for one request and one step at a time."""
    table = block_table.numpy()
    requests = list(enumerate(zip(positions.tolist(), seq_lens.tolist(), strict=True)))
    last_block = table.shape[1] - 1
    steps: list[tuple[torch.Tensor, ...]] = []
    for ahead in range(1, num_steps + 1):
        places, slots, lengths = [], [], []
        for index, (position, seq_len) in requests:
            place, slot, length = 0, PADDING_SLOT, 1
            if position + ahead < max_model_len:
                place = position + ahead
                block = int(table[index, min(place // block_size, last_block)])
                slot = block * block_size + place % block_size
                length = min(seq_len + ahead, max_model_len)
            places.append(place)
            slots.append(slot)
            lengths.append(length)
        step = (torch.tensor(places), torch.tensor(slots))
        steps.append((*step, torch.tensor(lengths, dtype=torch.int32)))
    return StepPlan(*zip(*steps, strict=True))


@pytest.fixture(scope="module", params=[plan_steps, plan_one_by_one])
def planner(request: pytest.FixtureRequest) -> Planner:
    return request.param


@dataclass(frozen=True)
class Batch:
    """Requests after the first draft pass; positions and lengths are independent on purpose."""

    positions: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    block_size: int
    max_model_len: int

    def plan(self, planner: Planner, num_steps: int) -> StepPlan:
        """Return a plan whose steps are the rows of tensors, to be compared as a whole."""
        plan = planner(
            self.positions,
            self.seq_lens,
            self.block_table,
            self.block_size,
            self.max_model_len,
            num_steps,
        )
        return StepPlan(*(torch.stack(list(steps)) for steps in plan))


def stock_steps(batch: Batch, num_steps: int) -> StepPlan:
    """Run vLLM's kernel ``num_steps`` times, feeding back what it wrote, as vLLM's loop does."""
    positions, seq_lens = batch.positions.clone(), batch.seq_lens.clone()
    steps: list[tuple[torch.Tensor, ...]] = []
    for _ in range(num_steps):
        clamped, slots = torch.zeros_like(positions), torch.zeros_like(positions)
        eagle_step_update_slot_mapping_and_metadata(
            positions_1d=positions,
            block_table_tensor=batch.block_table,
            seq_lens=seq_lens,
            block_size=batch.block_size,
            max_model_len=batch.max_model_len,
            out_clamped_positions=clamped,
            out_slot_mapping=slots,
        )
        positions = clamped
        steps.append((clamped, slots, seq_lens.clone()))
    return StepPlan(*(torch.stack(column) for column in zip(*steps, strict=True)))


def make_batch(positions: list[int], block_size: int, max_model_len: int, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    num_blocks = -(-max_model_len // block_size)
    table = torch.randperm(len(positions) * num_blocks, generator=generator)
    return Batch(
        positions=torch.tensor(positions),
        seq_lens=torch.tensor(positions, dtype=torch.int32) + 1,
        block_table=table.view(len(positions), num_blocks).int(),
        block_size=block_size,
        max_model_len=max_model_len,
    )


def assert_equal_until_past_the_end(planner: Planner, batch: Batch, num_steps: int) -> None:
    """Equal up to and including each request's first step past the end; vLLM loses track after."""
    ours, stock = batch.plan(planner, num_steps), stock_steps(batch, num_steps)
    ahead = torch.arange(1, num_steps + 1)[:, None]
    compared = batch.positions + ahead <= batch.max_model_len
    for name, mine, theirs in zip(StepPlan._fields, ours, stock, strict=True):
        wrong = ((mine != theirs) & compared).nonzero().tolist()
        assert not wrong, f"{name} differs at (step, request) {wrong}: {mine} {theirs}"


@settings(max_examples=150)
@given(
    max_model_len=st.integers(1, 70),
    block_size=st.sampled_from([1, 2, 4, 16, 128]),
    num_steps=st.integers(1, 6),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_equals_vllms_kernel(
    planner: Planner,
    max_model_len: int,
    block_size: int,
    num_steps: int,
    seed: int,
    data: st.DataObject,
) -> None:
    positions = data.draw(st.lists(st.integers(0, max_model_len - 1), min_size=1, max_size=5))
    assert_equal_until_past_the_end(
        planner, make_batch(positions, block_size, max_model_len, seed), num_steps
    )


def test_equals_vllms_kernel_where_lengths_are_not_positions(planner: Planner) -> None:
    batch = make_batch([3, 17, 28], 4, 32)
    batch.seq_lens.copy_(torch.tensor([9, 31, 32], dtype=torch.int32))
    assert_equal_until_past_the_end(planner, batch, 4)


def test_plan_of_one_request(planner: Planner) -> None:
    table = torch.tensor([[7, 3, 5]], dtype=torch.int32)
    batch = Batch(torch.tensor([2]), torch.tensor([3]).int(), table, 4, 12)
    plan = batch.plan(planner, 3)
    assert plan.positions.tolist() == [[3], [4], [5]]
    assert plan.slots.tolist() == [[31], [12], [13]]
    assert plan.seq_lens.tolist() == [[4], [5], [6]]


def test_slots_go_by_places_where_images_take_fewer_positions() -> None:
    positions = torch.tensor([[2, 6], [2, 6], [2, 6]])
    places, table = torch.tensor([5, 6]), torch.tensor([[7, 3], [1, 2]], dtype=torch.int32)
    plan = plan_steps(positions, (places + 1).int(), table, 4, 8, 2, places)
    assert [step.tolist() for step in plan.positions] == [[[3, 7]] * 3, [[4, 0]] * 3]
    assert [step.tolist() for step in plan.slots] == [[14, 11], [15, PADDING_SLOT]]
    assert [step.tolist() for step in plan.seq_lens] == [[7, 8], [8, 1]]
    rows = plan_steps(positions[0], (places + 1).int(), table, 4, 8, 2, places)
    assert [step.tolist() for step in rows.positions] == [[3, 7], [4, 0]]
    assert all(torch.equal(a, b) for a, b in zip(rows.slots, plan.slots, strict=True))


def test_request_that_reaches_the_end_stays_past_it(planner: Planner) -> None:
    plan = make_batch([29, 4], 4, 32).plan(planner, 5)
    assert plan.positions[:, 0].tolist() == [30, 31, 0, 0, 0]
    assert plan.seq_lens[:, 0].tolist() == [31, 32, 1, 1, 1]
    assert (plan.slots[:2, 0] != PADDING_SLOT).all()
    assert plan.slots[2:, 0].tolist() == [PADDING_SLOT] * 3
    assert plan.positions[:, 1].tolist() == [5, 6, 7, 8, 9]
    assert (plan.slots[:, 1] != PADDING_SLOT).all()


@pytest.mark.parametrize("position", [31, 32])
def test_request_at_the_end_writes_nowhere(planner: Planner, position: int) -> None:
    batch = make_batch([31], 4, 32)
    batch.positions.fill_(position)
    plan = batch.plan(planner, 2)
    assert plan.slots.tolist() == [[PADDING_SLOT], [PADDING_SLOT]]
    assert plan.seq_lens.tolist() == [[1], [1]]


def test_short_block_table_is_never_read_past_its_end(planner: Planner) -> None:
    # A table with fewer blocks than max_model_len needs, as vLLM's kernel allows.
    batch = Batch(
        torch.tensor([6]),
        torch.tensor([7]).int(),
        torch.tensor([[2, 5]]).int(),
        block_size=4,
        max_model_len=100,
    )
    assert_equal_until_past_the_end(planner, batch, 4)


def test_dtypes_and_inputs(planner: Planner) -> None:
    batch = make_batch([3, 30], 4, 32)
    before = [t.clone() for t in (batch.positions, batch.seq_lens, batch.block_table)]
    plan = batch.plan(planner, 4)
    assert plan.positions.dtype == plan.slots.dtype == torch.int64
    assert plan.seq_lens.dtype == torch.int32
    for old, new in zip(before, (batch.positions, batch.seq_lens, batch.block_table), strict=True):
        assert torch.equal(old, new)


def test_each_step_is_contiguous(planner: Planner) -> None:
    for tensor in make_batch([3, 9], 4, 32).plan(planner, 3):
        assert all(step.is_contiguous() for step in tensor)


@settings(max_examples=200)
@given(
    max_model_len=st.integers(1, 70),
    block_size=st.sampled_from([1, 2, 4, 16, 128]),
    num_steps=st.integers(1, 6),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_planners_agree_before_at_and_past_the_end(
    max_model_len: int, block_size: int, num_steps: int, seed: int, data: st.DataObject
) -> None:
    # Positions and lengths past the end, and tables with fewer blocks than the end needs.
    numbers = st.integers(0, max_model_len + 3)
    positions = data.draw(st.lists(numbers, min_size=1, max_size=5))
    lengths = data.draw(st.lists(numbers, min_size=len(positions), max_size=len(positions)))
    batch = make_batch(positions, block_size, max_model_len, seed)
    batch.seq_lens.copy_(torch.tensor(lengths))
    num_blocks = data.draw(st.integers(1, batch.block_table.shape[1]))
    batch = replace(batch, block_table=batch.block_table[:, :num_blocks])
    for name, mine, theirs in zip(
        StepPlan._fields,
        batch.plan(plan_steps, num_steps),
        batch.plan(plan_one_by_one, num_steps),
        strict=True,
    ):
        assert torch.equal(mine, theirs), name
        assert mine.dtype == theirs.dtype, name


def test_planners_agree_on_the_steps_that_write_nowhere() -> None:
    batch = make_batch([0, 27, 30, 31], 4, 32)
    batch.positions[-1] = 32
    plans = [batch.plan(planner, 6) for planner in (plan_steps, plan_one_by_one)]
    for mine, theirs in zip(*plans, strict=True):
        assert torch.equal(mine, theirs)
    assert (plans[0].slots == PADDING_SLOT).sum(0).tolist() == [0, 2, 5, 6]


def test_a_draft_without_keys_and_values_stays_where_it_is() -> None:
    positions, lengths = torch.tensor([7, 0]), torch.tensor([8, 1], dtype=torch.int32)
    plan = plan_in_place(positions, lengths, 3)
    for step in range(3):
        assert plan.positions[step].tolist() == [7, 0]
        assert plan.seq_lens[step].tolist() == [8, 1]
        assert plan.slots[step].tolist() == [PADDING_SLOT, PADDING_SLOT]
    assert len(plan.positions) == len(plan.slots) == len(plan.seq_lens) == 3
