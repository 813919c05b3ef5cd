"""Whatever was drafted and rejected, a request's rows have the bits of a step without drafts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from vllm_ascend_spec.patches.cpu_accepted_states import shift
from vllm_ascend_spec.states.layer import GatedDeltaLayer, StateRows

K = 3
KEY_HEADS, NUM_HEADS, KEY_DIM, VALUE_DIM, KERNEL = 2, 4, 16, 24, 4
WIDTH = 2 * KEY_HEADS * KEY_DIM + NUM_HEADS * VALUE_DIM
PROMPT, TOTAL = 11, 90
# Another request's are not between them.
BLOCKS = [7, 1, 4, 3]


class Text:
    """What a layer reads of a text, token by token."""

    def __init__(self, dtype: torch.dtype) -> None:
        torch.manual_seed(5)
        self.mixed = torch.randn(TOTAL, WIDTH).to(dtype)
        self.a, self.b = (torch.randn(TOTAL, NUM_HEADS).to(dtype) for _ in range(2))
        self.weights = {
            "conv1d": SimpleNamespace(weight=torch.randn(WIDTH, KERNEL).to(dtype), bias=None),
            "A_log": torch.rand(NUM_HEADS),
            "dt_bias": torch.randn(NUM_HEADS).to(dtype),
        }

    def layer(self, num_drafts: int) -> GatedDeltaLayer:
        """Return a layer whose cache holds what other requests left there."""
        dtype = self.mixed.dtype
        inputs = torch.randn(9, KERNEL - 1 + num_drafts, WIDTH).to(dtype)
        states = torch.randn(9, NUM_HEADS, VALUE_DIM, KEY_DIM).to(dtype)
        vllms = SimpleNamespace(kv_cache=(inputs, states), **self.weights)
        return GatedDeltaLayer(vllms, width_first=False)

    def rows(self, first: int, count: int, rejected: int) -> list[torch.Tensor]:
        """Return the inputs of some tokens, and of rejected ones behind them."""
        here = slice(first, first + count)
        return [
            torch.cat([part[here], torch.randn(rejected, part.shape[1]).to(part.dtype)])
            for part in (self.mixed, self.b, self.a)
        ]


def steps() -> Iterator[tuple[int, int, int]]:
    """Yield for each step its first token, accepted ones with the sampled one, and rejected ones.

    Each number of accepted drafts of each number of drafts comes several times.
    """
    order, at = random.Random(3), PROMPT
    while at < TOTAL:
        drafts = order.randint(0, K)
        accepted = min(1 + order.randint(0, drafts), TOTAL - at)
        yield at, accepted, 1 + drafts - accepted
        at += accepted


def run(layer: GatedDeltaLayer, text: Text, rows: StateRows, *which: int) -> torch.Tensor:
    given = text.rows(*which)
    out = torch.zeros(len(given[0]), NUM_HEADS, VALUE_DIM).to(text.mixed.dtype)
    layer.run(rows, *given, out)
    return out


def plain(text: Text) -> torch.Tensor:
    """Return the outputs without drafts."""
    layer, outs = text.layer(0), []
    for first, count in [(0, PROMPT), *((at, 1) for at in range(PROMPT, TOTAL))]:
        rows = StateRows([0, count], [[2]], [first > 0], [False])
        outs.append(run(layer, text, rows, first, count, 0))
    return torch.cat(outs)


def commit(layer: GatedDeltaLayer, accepted: int) -> None:
    """Do what the patch does with one request."""
    layer.states[BLOCKS[0]] = layer.states[BLOCKS[accepted - 1]]
    shift(layer.inputs[BLOCKS[0]], accepted - 1)


def speculating(text: Text, after_step: Any = commit) -> torch.Tensor:
    """Return the outputs of what was accepted."""
    layer = text.layer(K)
    outs = [run(layer, text, StateRows([0, PROMPT], [BLOCKS], [False], [False]), 0, PROMPT, 0)]
    for first, accepted, rejected in steps():
        count = accepted + rejected
        rows = StateRows([0, count], [BLOCKS], [True], [count > 1])
        outs.append(run(layer, text, rows, first, accepted, rejected)[:accepted])
        after_step(layer, accepted)
    return torch.cat(outs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_are_those_of_a_step_without_drafts(dtype: torch.dtype) -> None:
    text = Text(dtype)
    torch.testing.assert_close(speculating(text), plain(text), rtol=0, atol=0)


def only_state(layer: GatedDeltaLayer, accepted: int) -> None:
    layer.states[BLOCKS[0]] = layer.states[BLOCKS[accepted - 1]]


def only_inputs(layer: GatedDeltaLayer, accepted: int) -> None:
    shift(layer.inputs[BLOCKS[0]], accepted - 1)


def one_too_early(layer: GatedDeltaLayer, accepted: int) -> None:
    commit(layer, max(accepted - 1, 1))


@pytest.mark.parametrize("wrong", [lambda *_: None, only_state, only_inputs, one_too_early])
def test_a_wrong_commit_is_noticed(wrong: Any) -> None:
    text = Text(torch.float32)
    assert (speculating(text, wrong) - plain(text)).abs().max() > 1e-3


def test_a_request_reads_nothing_of_those_before_it() -> None:
    """Also where the first part of its prompt has one token."""
    text = Text(torch.float32)
    expected = plain(text)[:1]
    for _ in range(2):  # the cache holds something else each time
        rows = StateRows([0, 1], [BLOCKS], [False], [False])
        torch.testing.assert_close(run(text.layer(K), text, rows, 0, 1, 0), expected)


def test_requests_of_a_batch_do_not_touch_each_other() -> None:
    text = Text(torch.float32)
    layer, alone = text.layer(K), text.layer(K)
    layer.inputs.copy_(alone.inputs)
    layer.states.copy_(alone.states)
    # A prompt, a request with drafts, one without rows, one without drafts.
    rows = StateRows(
        bounds=[0, 5, 8, 8, 9],
        blocks=[[0, 1], [2, 3, 4], [8, 8], [5, 6]],
        has_state=[False, True, True, True],
        has_drafts=[False, True, False, False],
    )
    together = run(layer, text, rows, 0, 9, 0)
    apart = []
    for index, (first, end) in enumerate(zip(rows.bounds, rows.bounds[1:], strict=False)):
        one = StateRows(
            [0, end - first],
            [rows.blocks[index]],
            [rows.has_state[index]],
            [rows.has_drafts[index]],
        )
        if end > first:
            apart.append(run(alone, text, one, first, end - first, 0))
    torch.testing.assert_close(together, torch.cat(apart), rtol=0, atol=0)
    torch.testing.assert_close(layer.states, alone.states, rtol=0, atol=0)
    torch.testing.assert_close(layer.inputs, alone.inputs, rtol=0, atol=0)
