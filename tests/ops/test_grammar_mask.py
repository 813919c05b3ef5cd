"""Contract of ``grammar_mask``."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ops import batches
from tests.ops.batches import backends_on_cpu, int32, with_wide_stride
from vllm_ascend_spec.errors import BackendUnavailableError
from vllm_ascend_spec.ops import grammar_mask
from vllm_ascend_spec.ops.grammar_mask import OP

NAN, INF, NEG_INF = float("nan"), float("inf"), float("-inf")
ALL, NONE = -1, 0

needs_xgrammar = pytest.mark.skipif(
    importlib.util.find_spec("xgrammar") is None, reason="needs xgrammar"
)


@pytest.fixture(scope="module", params=backends_on_cpu(OP))
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@dataclass(frozen=True)
class Case:
    """Arguments of the op."""

    logits: torch.Tensor
    bitmask: torch.Tensor
    row_indices: torch.Tensor

    @classmethod
    def make(
        cls,
        num_rows: int,
        num_masked: int,
        vocab: int,
        seed: int,
        *,
        dtype: torch.dtype = torch.float32,
        spare_words: int = 0,
    ) -> Case:
        """Make random masks for some rows, in any order, a third of them skipped."""
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn(num_rows, vocab, generator=generator)
        fate = torch.rand(num_rows, vocab, generator=generator)
        for value, low in ((NAN, 0.7), (INF, 0.8), (NEG_INF, 0.9)):
            logits[fate > low] = value
        words = (vocab + 31) // 32 + spare_words
        bitmask = torch.randint(
            -(2**31), 2**31, (num_masked, words), generator=generator, dtype=torch.int64
        )
        rows = torch.cat([torch.randperm(num_rows, generator=generator), torch.full((9,), -1)])
        rows = rows[:num_masked]
        rows[torch.rand(len(rows), generator=generator) < 0.3] = -1
        return cls(logits.to(dtype), bitmask.int(), rows.int())

    def expected(self) -> list[list[float]]:
        """Return the masked logits, token by token."""
        logits = self.logits.float().tolist()
        for row, words in zip(self.row_indices.tolist(), self.bitmask.tolist(), strict=True):
            for token in range(len(logits[0]) if row >= 0 else 0):
                if not words[token // 32] >> (token % 32) & 1:
                    logits[row][token] = NEG_INF
        return logits

    def run(self, backend: str) -> torch.Tensor:
        """Return the logits that the op leaves; these are not touched."""
        logits = self.logits.clone()
        result = grammar_mask(logits, self.bitmask, self.row_indices, backend=backend)
        assert result is None
        return logits


def assert_same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


@settings(max_examples=200)
@given(
    num_rows=st.integers(1, 6),
    num_masked=st.integers(0, 9),
    vocab=st.integers(1, 140),
    seed=batches.seeds,
    dtype=batches.dtypes,
    spare_words=st.integers(0, 2),
)
def test_equals_the_definition(
    backend: str,
    num_rows: int,
    num_masked: int,
    vocab: int,
    seed: int,
    dtype: torch.dtype,
    spare_words: int,
) -> None:
    case = Case.make(num_rows, num_masked, vocab, seed, dtype=dtype, spare_words=spare_words)
    expected = torch.tensor(case.expected()).to(dtype)
    assert_same(case.run(backend), expected)


@pytest.mark.parametrize("vocab", [1000, 1003, 4096, 32000, 151669])
@pytest.mark.parametrize("dtype", batches.DTYPES)
def test_equals_the_reference_on_large_vocabularies(
    backend: str, vocab: int, dtype: torch.dtype
) -> None:
    case = Case.make(5, 4, vocab, seed=vocab, dtype=dtype)
    assert_same(case.run(backend), case.run("reference"))


@needs_xgrammar
@pytest.mark.parametrize("vocab", [1, 31, 32, 33, 1003])
def test_equals_xgrammar(backend: str, vocab: int) -> None:
    import xgrammar

    case = Case.make(4, 4, vocab, seed=vocab)
    rows = int32([2, 0, 3, 1])
    theirs = case.logits.clone()
    in_order = case.bitmask[rows.argsort()].contiguous()
    xgrammar.apply_token_bitmask_inplace(theirs, in_order, backend="cpu")
    assert_same(Case(case.logits, case.bitmask, rows).run(backend), theirs)


@needs_xgrammar
def test_rows_without_a_mask_equal_xgrammars_indices(backend: str) -> None:
    import xgrammar

    case = Case.make(5, 5, 70, seed=3)
    theirs = case.logits.clone()
    xgrammar.apply_token_bitmask_inplace(theirs, case.bitmask, indices=[1, 4], backend="cpu")
    ours = Case(case.logits, case.bitmask, int32([-1, 1, -1, -1, 4]))
    assert_same(ours.run(backend), theirs)


@needs_xgrammar
@pytest.mark.parametrize("dtype", batches.DTYPES)
def test_bitmask_of_xgrammar_is_taken_as_it_is(backend: str, dtype: torch.dtype) -> None:
    import xgrammar

    bitmask = xgrammar.allocate_token_bitmask(2, 50)
    xgrammar.reset_token_bitmask(bitmask)
    logits = torch.zeros(2, 50, dtype=dtype)
    grammar_mask(logits, bitmask, int32([0, 1]), backend=backend)
    assert not logits.any()


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        ([ALL, ALL], set(range(40))),
        ([NONE, NONE], set()),
        ([1, 0], {0}),
        ([-(2**31), 0], {31}),
        ([0, 1], {32}),
        ([0, 1 << 7], {39}),
        # Bits past the vocabulary.
        ([0, 1 << 8], set()),
        ([0, -(2**31)], set()),
        ([5, 3], {0, 2, 32, 33}),
    ],
)
def test_bits_stand_for_tokens(backend: str, words: list[int], allowed: set[int]) -> None:
    logits = torch.ones(1, 40)
    grammar_mask(logits, int32([words]), int32([0]), backend=backend)
    assert set(torch.nonzero(logits[0] == 1)[:, 0].tolist()) == allowed
    assert (logits[0] == NEG_INF).sum() == 40 - len(allowed)


@pytest.mark.parametrize("value", [NAN, INF, NEG_INF, -0.0, 6e4])
@pytest.mark.parametrize("dtype", batches.DTYPES)
def test_allowed_logits_keep_their_bits_forbidden_ones_do_not(
    backend: str, value: float, dtype: torch.dtype
) -> None:
    before = torch.full((1, 64), value, dtype=dtype)
    logits = before.clone()
    grammar_mask(logits, int32([[0b1010, NONE]]), int32([0]), backend=backend)
    width = torch.int32 if dtype == torch.float32 else torch.int16
    for token in (1, 3):
        assert logits[0, token].view(width) == before[0, token].view(width)
    forbidden = [token for token in range(64) if token not in (1, 3)]
    assert (logits[0, forbidden] == NEG_INF).all()


def test_other_rows_are_left_alone(backend: str) -> None:
    logits = torch.tensor([[1.0, NAN], [2.0, 3.0], [INF, NEG_INF]])
    before = logits.clone()
    grammar_mask(logits, int32([[0b01], [NONE]]), int32([1, -1]), backend=backend)
    assert_same(logits[[0, 2]], before[[0, 2]])
    assert logits[1].tolist() == [2.0, NEG_INF]


def test_masks_of_row_minus_one_are_skipped(backend: str) -> None:
    logits = torch.ones(3, 33)
    grammar_mask(logits, int32([[NONE, NONE]] * 4), int32([-1] * 4), backend=backend)
    assert (logits == 1).all()


@pytest.mark.parametrize("num_rows", [0, 3])
def test_no_masks_change_nothing(backend: str, num_rows: int) -> None:
    logits = torch.ones(num_rows, 33)
    grammar_mask(logits, torch.empty(0, 2, dtype=torch.int32), int32([]), backend=backend)
    assert (logits == 1).all()


@pytest.mark.parametrize("dtype", batches.DTYPES)
def test_what_lies_between_the_rows_is_left_alone(backend: str, dtype: torch.dtype) -> None:
    case = Case.make(4, 4, 37, seed=1, dtype=dtype)
    wide = with_wide_stride(case.logits)
    between = wide.as_strided((4, 3), wide.stride(), storage_offset=37)
    assert (between == 1e4).all()
    grammar_mask(wide, case.bitmask, case.row_indices, backend=backend)
    assert_same(wide, case.run("reference"))
    assert (between == 1e4).all()


def test_rows_may_start_anywhere(backend: str) -> None:
    storage = torch.ones(200)
    logits = storage[3:].as_strided((2, 65), (70, 1))
    grammar_mask(logits, int32([[NONE] * 3]), int32([1]), backend=backend)
    changed = torch.nonzero(storage == NEG_INF)[:, 0].tolist()
    assert changed == list(range(3 + 70, 3 + 70 + 65))


def test_masks_are_not_modified(backend: str) -> None:
    case = Case.make(4, 4, 70, seed=2)
    bitmask, rows = case.bitmask.clone(), case.row_indices.clone()
    case.run(backend)
    assert torch.equal(case.bitmask, bitmask)
    assert torch.equal(case.row_indices, rows)


def test_masking_twice_is_masking_once(backend: str) -> None:
    case = Case.make(4, 4, 70, seed=4)
    once = case.run(backend)
    assert_same(Case(once, case.bitmask, case.row_indices).run(backend), once)


def test_row_indices_may_be_a_view(backend: str) -> None:
    case = Case.make(4, 4, 70, seed=5)
    view = torch.stack([case.row_indices, torch.full((4,), 99, dtype=torch.int32)], dim=1)[:, 0]
    assert view.stride(0) == 2
    assert_same(Case(case.logits, case.bitmask, view).run(backend), case.run("reference"))


def test_registered_op_equals_the_function() -> None:
    case = Case.make(4, 4, 70, seed=6)
    logits = case.logits.clone()
    torch.ops.vllm_ascend_spec.grammar_mask(logits, case.bitmask, case.row_indices)
    assert_same(logits, case.run("reference"))


def test_registered_op_passes_opcheck() -> None:
    case = Case.make(4, 3, 70, seed=7)
    logits = case.logits.nan_to_num()
    torch.library.opcheck(
        torch.ops.vllm_ascend_spec.grammar_mask.default, (logits, case.bitmask, case.row_indices)
    )


WRONG: list[tuple[str, Any, str]] = [
    ("logits", torch.zeros(3, 40, dtype=torch.float64), "torch.float64"),
    ("logits", torch.zeros(3, 40, dtype=torch.int32), "torch.int32"),
    ("logits", torch.zeros(40), "1 dimensions"),
    ("logits", torch.zeros(1, 3, 40), "3 dimensions"),
    ("logits", torch.zeros(3, 0), "vocabulary of 0"),
    ("logits", torch.zeros(40, 3).T, "contiguous"),
    ("logits", torch.zeros(1, 40).expand(3, 40), "overlap"),
    ("bitmask", torch.zeros(2, 2, dtype=torch.int64), "torch.int64"),
    ("bitmask", torch.zeros(2, 2), "torch.float32"),
    ("bitmask", torch.zeros(4, dtype=torch.int32), "1 dimensions"),
    ("bitmask", torch.zeros(2, 1, dtype=torch.int32), "1 words are too few"),
    ("bitmask", torch.zeros(2, 4, dtype=torch.int32)[:, ::2], "contiguous"),
    ("bitmask", torch.zeros(2, 2, dtype=torch.int32, device="meta"), "on meta"),
    ("row_indices", torch.zeros(2, dtype=torch.int64), "torch.int64"),
    ("row_indices", int32([0]), r"shape \(1,\), expected \(2,\)"),
    ("row_indices", int32([0, 1, 2]), r"shape \(3,\), expected \(2,\)"),
    ("row_indices", int32([[0, 1]]), "shape"),
    ("row_indices", torch.zeros(2, dtype=torch.int32, device="meta"), "on meta"),
    ("row_indices", int32([0, 3]), r"3 is neither -1 nor in \[0, 3\)"),
    ("row_indices", int32([-2, 0]), "-2 is neither"),
    ("row_indices", int32([1, 1]), "twice"),
]


@pytest.mark.parametrize(("name", "value", "shown"), WRONG)
def test_wrong_arguments_are_named(name: str, value: torch.Tensor, shown: str) -> None:
    right = {
        "logits": torch.zeros(3, 40),
        "bitmask": int32([[ALL, ALL], [NONE, NONE]]),
        "row_indices": int32([0, 2]),
    }
    grammar_mask(**right)
    with pytest.raises(ValueError, match=f"^{name}: .*{shown}"):
        grammar_mask(**{**right, name: value})


def test_unknown_backend_raises_and_lists_those_there_are() -> None:
    case = Case.make(3, 2, 40, seed=0)
    with pytest.raises(BackendUnavailableError, match=r"'abacus'.*reference"):
        case.run("abacus")
