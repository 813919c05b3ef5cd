"""A request is held to its own ``thinking_token_budget`` only, and to all of it."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm import SamplingParams
from vllm.v1.sample.thinking_budget_state import ThinkingBudgetStateHolder
from vllm.v1.worker.gpu_input_batch import CachedRequestState, InputBatch

from tests.patches.batches import empty_batch
from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches.upstream import thinking_budget_state

START, END = [8, 9], [10]


def reasoning() -> Any:
    return SimpleNamespace(reasoning_start_token_ids=START, reasoning_end_token_ids=END)


@pytest.fixture
def batch() -> InputBatch:
    return empty_batch(8, 16, reasoning_config=reasoning())


@pytest.fixture
def patched(take_out: TakeOut) -> None:
    take_out(thinking_budget_state)
    thinking_budget_state.apply()


@pytest.fixture
def stock(take_out: TakeOut) -> None:
    take_out(thinking_budget_state)


def add(batch: InputBatch, name: str, budget: int | None) -> None:
    request = CachedRequestState(
        req_id=name,
        prompt_token_ids=[1, 2],
        mm_features=[],
        sampling_params=SamplingParams(thinking_token_budget=budget),
        generator=None,
        block_ids=([0],),
        num_computed_tokens=0,
        output_token_ids=[],
    )
    batch.add_request(request)


def budgets(batch: InputBatch) -> dict[str | None, int]:
    """Return the budget that vLLM holds each request to."""
    records = batch.thinking_budget_state_holder._state
    names = {index: name for name, index in batch.req_id_to_index.items()}
    return {names.get(i): record["thinking_token_budget"] for i, record in records.items()}


def leave_and_move(batch: InputBatch) -> dict[str | None, int]:
    """A request with a budget leaves slot 0; one without moves there from slot 1."""
    add(batch, "thrifty", 3)
    add(batch, "free", None)
    batch.refresh_metadata()
    assert budgets(batch) == {"thrifty": 3}
    batch.remove_request("thrifty")
    batch.condense()
    batch.refresh_metadata()
    return budgets(batch)


def test_who_moves_does_not_inherit(batch: InputBatch, patched: None) -> None:
    assert leave_and_move(batch) == {}


def test_without_the_patch_who_moves_inherits(batch: InputBatch, stock: None) -> None:
    assert leave_and_move(batch) == {"free": 3}


def follow_many(batch: InputBatch, seed: int) -> bool:
    """Let requests come, go and change places; tell whether each was held to its own budget."""
    choose = random.Random(seed)
    wanted: dict[str, int | None] = {}
    for step in range(60):
        leaving = [name for name in wanted if choose.random() < 0.3]
        for name in leaving:
            batch.remove_request(name)
            del wanted[name]
        for place in range(choose.randint(0, 8 - len(wanted))):
            name = f"{step}-{place}"
            wanted[name] = choose.choice([None, choose.randint(0, 9)])
            add(batch, name, wanted[name])
        batch.condense()
        if len(wanted) > 1 and choose.random() < 0.5:
            batch.swap_states(*choose.sample(range(len(wanted)), 2))
        batch.refresh_metadata()
        if budgets(batch) != {n: b for n, b in wanted.items() if b is not None}:
            return False
    return True


@pytest.mark.parametrize("seed", range(10))
def test_everyone_keeps_their_own(batch: InputBatch, patched: None, seed: int) -> None:
    assert follow_many(batch, seed)


@pytest.mark.parametrize("seed", range(10))
def test_without_the_patch_they_do_not(batch: InputBatch, stock: None, seed: int) -> None:
    assert not follow_many(batch, seed)


def length_of_thought(prompt: list[int], budget: int) -> int:
    """Return the tokens between the start marker and the closing string, without speculation."""
    holder = ThinkingBudgetStateHolder(reasoning(), 1, 0, torch.device("cpu"), False)
    holder._state[0] = holder._init_state_entry(prompt, budget)
    output: list[int] = []
    while len(output) < 20:
        holder.update_state([output], None)
        token = int(holder.apply_to_logits(torch.zeros(1, 16), False, None)[0].argmax())
        if token in END:
            break
        output.append(3)
    return len(prompt) - 1 - len(START) + len(output)


def test_a_thought_in_the_prompt_is_counted_in_full(patched: None) -> None:
    assert [length_of_thought([1, *START, 4], budget) for budget in (1, 2, 5)] == [1, 2, 5]


def test_without_the_patch_it_is_counted_too_short(stock: None) -> None:
    assert length_of_thought([1, *START, 4], 5) == 5 + len(START) - 1
