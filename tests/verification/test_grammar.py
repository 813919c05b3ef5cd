"""Masks of structured output reach the rows they are for, and no others."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from vllm.v1.structured_output.utils import apply_grammar_bitmask

from tests.verification.requests import BACKENDS
from vllm_ascend_spec.verification import grammar
from vllm_ascend_spec.verification.grammar import mask_logits

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
INFINITY = float("inf")


def scheduled(drafts: dict[str, int]) -> Any:
    """Say how many drafts each request has; as in vLLM, those without have no entry."""
    lists = {name: [7] * count for name, count in drafts.items() if count}
    return SimpleNamespace(scheduled_spec_decode_tokens=lists)


def grammars(allowed: dict[str, list[set[int]]], vocab_size: int, *, past: int = 0) -> Any:
    """Pack, per request, one set of allowed tokens for each draft and one more.

    Bits past the vocabulary are ``past``.
    """
    rows = [row for rows in allowed.values() for row in rows]
    bits = np.zeros((len(rows), -(-vocab_size // 32) * 32), dtype=np.uint8)
    bits[:, vocab_size:] = past
    for row, tokens in enumerate(rows):
        bits[row, sorted(tokens)] = 1
    words = np.packbits(bits, axis=1, bitorder="little").view(np.int32)
    return SimpleNamespace(structured_output_request_ids=list(allowed), grammar_bitmask=words)


def mask(
    logits: torch.Tensor,
    batch: dict[str, int],
    allowed: dict[str, list[set[int]]],
    backend: str | None = None,
    gone: dict[str, int] | None = None,
) -> None:
    """Mask in place; ``batch`` is in the order of its rows, ``gone`` has left it."""
    sizes = {**batch, **(gone or {})}
    output = grammars(allowed, logits.shape[1])
    mask_logits(logits, scheduled(sizes), output, list(batch), backend)


def kept(logits: torch.Tensor) -> list[set[int]]:
    """Return the tokens of each row that are not forbidden."""
    return [set(row.isfinite().nonzero()[:, 0].tolist()) for row in logits]


EVERYTHING = set(range(40))


@pytest.mark.parametrize("backend", BACKENDS)
def test_ragged_drafts(backend: str) -> None:
    logits = torch.zeros(8, 40)
    allowed = {"a": [{0}, {1, 31}, {32}], "c": [{39, 2}], "d": [{3}, {4}]}
    mask(logits, {"a": 2, "b": 1, "c": 0, "d": 1}, allowed, backend)
    assert kept(logits) == [
        *[{0}, {1, 31}, {32}],
        *[EVERYTHING, EVERYTHING],
        {39, 2},
        *[{3}, {4}],
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_masks_in_another_order_than_the_batch(backend: str) -> None:
    logits = torch.zeros(6, 40)
    allowed = {"c": [{5}, {6}], "a": [{1}, {2}, {3}]}
    mask(logits, {"a": 2, "b": 0, "c": 1}, allowed, backend)
    assert kept(logits) == [{1}, {2}, {3}, EVERYTHING, {5}, {6}]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_requests_that_left_the_batch(backend: str, place: int) -> None:
    """Their masks are skipped, however many they are, and the others stay right."""
    allowed = [("a", [{1}, {2}]), ("c", [{5}])]
    allowed.insert(place, ("gone", [{8}, {9}, {10}]))
    logits = torch.zeros(4, 40)
    mask(logits, {"a": 1, "b": 0, "c": 0}, dict(allowed), backend, gone={"gone": 2})
    assert kept(logits) == [{1}, {2}, EVERYTHING, {5}]


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_have_left(backend: str) -> None:
    logits = torch.zeros(2, 40)
    mask(logits, {"a": 1}, {"gone": [{1}]}, backend, gone={"gone": 0})
    assert kept(logits) == [EVERYTHING, EVERYTHING]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_other_rows_are_not_touched(backend: str, dtype: torch.dtype) -> None:
    """Bit for bit: NaN with any payload, infinities and the padding of wider rows stay."""
    memory = torch.randn(5, 64, generator=torch.Generator().manual_seed(0)).to(dtype)
    memory[:, ::7], memory[:, 1::7] = float("nan"), INFINITY
    logits, before = memory[:, :40], memory.clone()
    mask(logits, {"a": 0, "b": 1, "c": 1}, {"b": [EVERYTHING - {2}, {9}]}, backend)
    integers = torch.int32 if dtype == torch.float32 else torch.int16
    same = memory.view(integers) == before.view(integers)
    assert same[[0, 3, 4]].all()
    assert same[:, 40:].all()
    assert (~same[1]).nonzero()[:, 0].tolist() == [2]
    assert same[2, 9]
    assert (logits[2, [t for t in range(40) if t != 9]] == -INFINITY).all()


def random_case(seed: int, dtype: torch.dtype) -> tuple[torch.Tensor, dict[str, int], Any, Any]:
    rng = random.Random(seed)
    vocab_size = rng.choice([3, 31, 32, 33, 64, 100, 517])
    batch = {f"r{index}": rng.randint(0, 4) for index in range(rng.randint(1, 7))}
    names = [name for name in batch if rng.random() < 0.6]
    gone = {f"gone{index}": rng.randint(0, 3) for index in range(rng.randint(0, 2))}
    names += gone
    rng.shuffle(names)
    sizes = {**batch, **gone}
    allowed = {
        name: [
            {t for t in range(vocab_size) if rng.random() < rng.choice([0.02, 0.5, 1.0])}
            for _ in range(sizes[name] + 1)
        ]
        for name in names
    }
    rows = sum(count + 1 for count in batch.values())
    logits = torch.randn(rows, vocab_size, generator=torch.Generator().manual_seed(seed)).to(dtype)
    # Where all tokens of a row are allowed and the bit past them is 0, xgrammar's CPU kernel writes
    # past the row.
    return logits, batch, scheduled(sizes), grammars(allowed, vocab_size, past=1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_result_is_that_of_vllm(backend: str, dtype: torch.dtype) -> None:
    masked = 0
    for seed in range(60):
        logits, batch, scheduler_output, grammar_output = random_case(seed, dtype)
        if not grammar_output.structured_output_request_ids:
            continue
        expected = logits.clone()
        input_batch: Any = SimpleNamespace(req_ids=list(batch))
        apply_grammar_bitmask(scheduler_output, grammar_output, input_batch, expected)
        mask_logits(logits, scheduler_output, grammar_output, list(batch), backend)
        assert torch.equal(logits, expected)
        masked += int(logits.isneginf().sum())
    assert masked > 1000


def test_read_only_masks_are_taken_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    """So they arrive where the worker is a process of its own."""
    output = grammars({"a": [{1}]}, 40)
    output.grammar_bitmask.flags.writeable = False
    logits = torch.zeros(1, 40)
    mask_logits(logits, scheduled({}), output, ["a"], None)
    assert kept(logits) == [{1}]
    assert not [w for w in recwarn if "writable" in str(w.message)]


@pytest.mark.parametrize("order", ["F", "every other row"])
def test_masks_may_lie_in_memory_as_they_like(order: str) -> None:
    output = grammars({"a": [{1}, {2}, {33}]}, 40)
    words = output.grammar_bitmask
    if order == "F":
        output.grammar_bitmask = np.asfortranarray(words)
    else:
        output.grammar_bitmask = np.repeat(words, 2, axis=0)[::2]
    logits = torch.zeros(3, 40)
    mask_logits(logits, scheduled({"a": 2}), output, ["a"], None)
    assert kept(logits) == [{1}, {2}, {33}]


def test_more_masks_than_requests_need_are_ignored() -> None:
    """vLLM hands over a slice of its buffer; rows behind the last request mean nothing."""
    output = grammars({"a": [{1}], "b": [{2}]}, 40)
    output.structured_output_request_ids = ["a"]
    logits = torch.zeros(2, 40)
    mask_logits(logits, scheduled({}), output, ["a", "b"], None)
    assert kept(logits) == [{1}, EVERYTHING]


def test_the_ops_backend_is_the_one_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(grammar, "grammar_mask", lambda *_, backend: asked.append(backend))
    for backend in ("reference", "cpu", None):
        mask(torch.zeros(1, 40), {"a": 0}, {"a": [{1}]}, backend)
    assert asked == ["reference", "cpu", None]
