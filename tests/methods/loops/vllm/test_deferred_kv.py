"""Tokens that a draft reads later leave behind what reading them at once does."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from vllm_ascend_spec.methods.loops.vllm import deferred_kv
from vllm_ascend_spec.methods.loops.vllm.deferred_kv import DeferredKVWrites, PendingTokens


class Cache:
    """A KV cache that notes which token a slot has; within a pass it writes backwards.

    A kernel may write in any order. Backwards, the oldest of two would stay.
    """

    def __init__(self) -> None:
        self.slots: dict[int, tuple[int, int, float]] = {}
        self.passes: list[int] = []

    def read(self, tokens: PendingTokens) -> None:
        self.passes.append(len(tokens.token_ids))
        assert tokens.hidden is not None
        rows = zip(
            tokens.slots.tolist(),
            tokens.token_ids.tolist(),
            tokens.positions.tolist(),
            tokens.hidden[:, 0].tolist(),
            strict=True,
        )
        for slot, *row in reversed(list(rows)):
            if slot >= 0:
                self.slots[slot] = tuple(row)


def step(*slots: int, token: int = 0) -> PendingTokens:
    """Return tokens that go to slots, each of them another one."""
    numbers = torch.arange(len(slots), dtype=torch.int32) + token
    return PendingTokens(
        numbers, numbers.long() + 1, numbers[:, None].float() + 2, torch.tensor(slots)
    )


@given(
    st.lists(st.lists(st.integers(-1, 40), min_size=1, max_size=12, unique=True), max_size=60),
    st.lists(st.booleans(), min_size=60, max_size=60),
)
def test_the_cache_is_as_if_all_were_read_at_once(
    steps: list[list[int]], drafts_after: list[bool]
) -> None:
    at_once, later = Cache(), Cache()
    waiting = DeferredKVWrites(later.read)
    for place, slots in enumerate(steps):
        tokens = step(*slots, token=100 * place)
        at_once.read(tokens)
        waiting.add(tokens)
        if drafts_after[place]:
            waiting.catch_up()
            assert later.slots == at_once.slots
    waiting.catch_up()
    assert later.slots == at_once.slots
    assert sum(later.passes) == sum(at_once.passes)


def test_steps_share_a_pass() -> None:
    cache = Cache()
    waiting = DeferredKVWrites(cache.read)
    for place in range(2 * deferred_kv.MOST_STEPS + 3):
        waiting.add(step(place, 1000 + place))
    assert cache.passes == [2 * deferred_kv.MOST_STEPS] * 2
    waiting.catch_up()
    waiting.catch_up()
    assert cache.passes == [2 * deferred_kv.MOST_STEPS] * 2 + [6]


def test_many_tokens_wait_for_no_other_step() -> None:
    cache = Cache()
    waiting = DeferredKVWrites(cache.read)
    waiting.add(step(*range(deferred_kv.MOST_TOKENS + 7)))
    assert cache.passes == [deferred_kv.MOST_TOKENS + 7]


def test_buffers_may_be_written_over() -> None:
    """The runner has one buffer for the slots of all steps."""
    cache = Cache()
    waiting = DeferredKVWrites(cache.read)
    tokens = step(3, 4, token=7)
    waiting.add(tokens)
    for part in tokens:
        part.zero_()
    waiting.catch_up()
    assert cache.slots == {3: (7, 8, 9.0), 4: (8, 9, 10.0)}


def test_a_draft_that_reads_no_states() -> None:
    found: list[PendingTokens] = []
    waiting = DeferredKVWrites(found.append)
    for slot in (1, 2):
        waiting.add(step(slot)._replace(hidden=None))
    waiting.catch_up()
    assert found[0].hidden is None
    assert found[0].slots.tolist() == [1, 2]
