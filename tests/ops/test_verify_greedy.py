"""Contract of ``verify_greedy``."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

from tests.ops import batches, oracle
from tests.ops.batches import GREEDY_BACKENDS, as_lists, int32, make_drafts
from vllm_ascend_spec.ops import verify_greedy

NAN, INF, NEG_INF = float("nan"), float("inf"), float("-inf")


@pytest.fixture(scope="module", params=GREEDY_BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@settings(max_examples=150)
@given(
    lengths=batches.lengths,
    vocab=batches.vocab_sizes,
    seed=batches.seeds,
    dtype=batches.dtypes,
)
def test_equals_the_oracle(
    backend: str, lengths: list[int], vocab: int, seed: int, dtype: torch.dtype
) -> None:
    arguments = make_drafts(lengths, vocab, seed, dtype=dtype)
    result = as_lists(verify_greedy(**arguments, backend=backend))
    assert result == oracle.expected_greedy(*arguments.values())


@pytest.mark.parametrize("vocab", [127, 128, 1000, 1003])
@pytest.mark.parametrize("dtype", batches.DTYPES)
def test_equals_the_oracle_on_vocabularies_of_odd_sizes(
    backend: str, vocab: int, dtype: torch.dtype
) -> None:
    arguments = make_drafts([3, 0, 5], vocab, seed=vocab, dtype=dtype)
    result = as_lists(verify_greedy(**arguments, backend=backend))
    assert result == oracle.expected_greedy(*arguments.values())


def rows_with_peaks(*peaks: int) -> torch.Tensor:
    """Return logits of a vocabulary of 5 whose rows peak at ``peaks``."""
    return torch.eye(5)[list(peaks)]


@pytest.mark.parametrize(
    ("drafts", "output", "count"),
    [
        ([1, 2, 3], [1, 2, 3, 4], 4),
        ([0, 2, 3], [1, -1, -1, -1], 1),
        ([1, 0, 3], [1, 2, -1, -1], 2),
        ([1, 2, 0], [1, 2, 3, -1], 3),
        ([-1, 2, 3], [1, -1, -1, -1], 1),
        ([1, -1, 3], [1, 2, -1, -1], 2),
    ],
)
def test_accepts_the_longest_right_prefix_and_adds_one_token(
    backend: str, drafts: list[int], output: list[int], count: int
) -> None:
    logits = rows_with_peaks(1, 2, 3, 4)
    result = verify_greedy(logits, int32(drafts), int32([3]), 3, backend=backend)
    assert as_lists(result) == ([output], [count])


def test_requests_without_drafts_get_one_token(backend: str) -> None:
    logits = rows_with_peaks(3, 1, 2, 4)
    result = verify_greedy(logits, int32([1]), int32([0, 1, 1]), 1, backend=backend)
    assert as_lists(result) == ([[3, -1], [1, 2], [4, -1]], [1, 2, 1])


def test_a_batch_without_any_drafts(backend: str) -> None:
    result = verify_greedy(rows_with_peaks(3, 1), int32([]), int32([0, 0]), 0, backend=backend)
    assert as_lists(result) == ([[3], [1]], [1, 1])


def test_an_empty_batch(backend: str) -> None:
    tokens, counts = verify_greedy(torch.empty(0, 5), int32([]), int32([]), 2, backend=backend)
    assert tokens.shape == (0, 3)
    assert counts.shape == (0,)


def test_result_is_as_wide_as_max_draft_len(backend: str) -> None:
    logits = rows_with_peaks(1, 2)
    result = verify_greedy(logits, int32([1]), int32([1]), 4, backend=backend)
    assert as_lists(result) == ([[1, 2, -1, -1, -1]], [2])


@pytest.mark.parametrize(
    ("row", "token"),
    [
        ([1.0, 3.0, 3.0, 2.0], 1),
        ([3.0, 3.0, 3.0, 3.0], 0),
        ([NAN, 1.0, 2.0, NAN], 2),
        ([NAN, NEG_INF, NEG_INF, -5.0], 3),
        ([NEG_INF] * 4, 0),
        ([NAN] * 4, 0),
        ([NEG_INF, NAN, NAN, NEG_INF], 0),
        ([5.0, INF, NAN, INF], 1),
    ],
)
@pytest.mark.parametrize("dtype", batches.DTYPES)
def test_ties_nan_and_rows_of_nothing(
    backend: str, row: list[float], token: int, dtype: torch.dtype
) -> None:
    logits = torch.tensor([row, row], dtype=dtype)
    result = verify_greedy(logits, int32([token]), int32([1]), 1, backend=backend)
    assert as_lists(result) == ([[token, token]], [2])


def test_row_stride_may_exceed_the_vocabulary(backend: str) -> None:
    arguments = make_drafts([2, 0, 3], 7, seed=3)
    wide = batches.with_wide_stride(arguments["logits"])
    result = verify_greedy(**{**arguments, "logits": wide}, backend=backend)
    assert as_lists(result) == as_lists(verify_greedy(**arguments, backend=backend))


@pytest.mark.parametrize("dtype", batches.DTYPES)
def test_arguments_are_not_modified(backend: str, dtype: torch.dtype) -> None:
    arguments = make_drafts([2, 0, 3], 7, seed=5, dtype=dtype)
    before = [value.clone() for value in arguments.values() if isinstance(value, torch.Tensor)]
    verify_greedy(**arguments, backend=backend)
    after = [value for value in arguments.values() if isinstance(value, torch.Tensor)]
    for old, new in zip(before, after, strict=True):
        torch.testing.assert_close(new, old, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("garbage", [NAN, 1e30, INF, NEG_INF])
@pytest.mark.parametrize("seed", range(5))
def test_rows_after_the_first_rejection_do_not_matter(
    backend: str, garbage: float, seed: int
) -> None:
    arguments = make_drafts([4, 2, 0, 4], 5, seed=seed, broken=False)
    tokens, counts = verify_greedy(**arguments, backend=backend)
    spoilt = {**arguments, "logits": batches.spoil_unread_rows(arguments, counts, garbage)}
    assert not torch.equal(spoilt["logits"], arguments["logits"])
    assert torch.equal(verify_greedy(**spoilt, backend=backend)[0], tokens)


def test_registered_op_equals_the_function(backend: str) -> None:
    arguments = make_drafts([2, 0, 3], 7, seed=7)
    result = torch.ops.vllm_ascend_spec.verify_greedy(**arguments)
    assert as_lists(result) == as_lists(verify_greedy(**arguments, backend=backend))


@pytest.mark.parametrize("lengths", [[2, 0, 3], [0, 0], [1]])
def test_registered_op_passes_opcheck(lengths: list[int]) -> None:
    arguments = make_drafts(lengths, 7, seed=9)
    torch.library.opcheck(
        torch.ops.vllm_ascend_spec.verify_greedy.default, tuple(arguments.values())
    )
