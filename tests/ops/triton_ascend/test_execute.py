"""The IR that goes to Ascend's compiler, run on the CPU, does what the reference does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.ops.batches import DTYPES, with_wide_stride
from tests.ops.cases import parity_cases
from tests.ops.parity import Arguments, assert_right, judge, judge_greedy
from tests.ops.seeded import seeded_case, ties_of_result
from tests.ops.trees import ties_of_result as ties_of_trees
from tests.ops.trees import tree_cases
from tests.ops.triton_ascend import backend
from tests.ops.triton_ascend.environment import requires_execution
from tests.ops.triton_ascend.launch import MOST_PROGRAMS, AccessError, Machine
from tests.ops.triton_ascend.lowering import Variant, lower
from vllm_ascend_spec.ops import grammar_mask

pytestmark = requires_execution

ALL = ("top_k", "top_p", "min_p")
FILTERS: tuple[tuple[str, ...], ...] = ((), ALL)
LARGE = 151936
CONTROLS = "tests.ops.triton_ascend.controls"


# Kernels count from a row's start, so they go wrong at its end first.
@pytest.fixture(params=["ends", pytest.param("starts", marks=pytest.mark.nightly)])
def machine(folder: Path, request: pytest.FixtureRequest) -> Machine:
    """Return a machine on which the tensors' ends, or their starts, lie at a fence."""
    pytest.importorskip("triton", reason="the kernels need the package triton")
    return Machine(folder, fence_at_start=request.param == "starts")


def prepare(machine: Machine, cases: list[Arguments]) -> None:
    """Lower and compile at once what both verification ops launch for these cases."""
    recorder = backend.Recorder()
    for case in cases:
        backend.verify_sample(case, recorder)
        backend.verify_greedy(case, recorder)
    machine.prepare(recorder.variants)


def check_sampled(machine: Machine, cases: list[Arguments], *, most_ties: float = 0.05) -> None:
    prepare(machine, cases)
    verdicts = [judge(case, backend.verify_sample(case, machine.launch)) for case in cases]
    assert_right(verdicts, most_ties=most_ties)
    assert sum(machine.launches.values()) == 2 * len(cases)


def kinds_of_requests() -> Iterator[Any]:
    """Yield rules, drafts and filters; by day one of each filters, as each takes a compiler.

    The block rule is below by day, in half precision and with a large vocabulary.
    """
    for rule, drafts, filters in itertools.product(
        ("token", "block"), ("one-hot", "near"), FILTERS
    ):
        by_day = rule == "token" and (drafts == "near") == (filters == ALL)
        yield pytest.param(
            rule,
            drafts,
            filters,
            marks=() if by_day else pytest.mark.nightly,
            id=f"{rule}-{drafts}-{'filtered' if filters else 'plain'}",
        )


@pytest.mark.parametrize(("rule", "drafts", "filters"), list(kinds_of_requests()))
def test_sampled_requests(
    machine: Machine, rule: str, drafts: str, filters: tuple[str, ...]
) -> None:
    cases = [
        case
        for vocab_size, count in ((5, 4), (1003, 6), (5000, 6))
        for case in parity_cases(
            count,
            seed=vocab_size,
            vocab_size=vocab_size,
            dtype=torch.float32,
            rule=rule,
            drafts=drafts,
            filters=filters,
        )
    ]
    check_sampled(machine, cases)


# Of the others' kernels all filters at once are there by day.
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "top_p" else pytest.mark.nightly) for n in ALL]
)
def test_each_filter_alone(machine: Machine, name: str) -> None:
    fixed: dict[str, Any] = {"vocab_size": 1003, "drafts": "one-hot", "rule": "token"}
    cases = parity_cases(8, seed=3, dtype=torch.float32, filters=(name,), **fixed)
    check_sampled(machine, list(cases))


# bfloat16 is below by day, with a large vocabulary.
@pytest.mark.parametrize(
    "dtype", [pytest.param(torch.bfloat16, marks=pytest.mark.nightly), torch.float16], ids=str
)
def test_half_precision(machine: Machine, dtype: torch.dtype) -> None:
    fixed: dict[str, Any] = {"vocab_size": 1003, "drafts": "near", "rule": "block"}
    cases = [
        *parity_cases(6, seed=4, dtype=dtype, filters=ALL, **fixed),
        *parity_cases(6, seed=5, dtype=dtype, filters=(), **fixed),
    ]
    check_sampled(machine, cases)


@pytest.mark.parametrize(
    ("rule", "drafts", "filters", "dtype"),
    [
        # Plain kernels of a large vocabulary are below by day, with seeds.
        pytest.param("token", "one-hot", (), torch.bfloat16, marks=pytest.mark.nightly),
        ("token", "near", ALL, torch.bfloat16),
        ("block", "one-hot", ALL, torch.float32),
        pytest.param("block", "near", (), torch.float32, marks=pytest.mark.nightly),
    ],
)
def test_a_large_vocabulary(folder: Path, rule: str, drafts: str, filters: Any, dtype: Any) -> None:
    fixed: dict[str, Any] = {"vocab_size": LARGE, "drafts": drafts, "filters": filters}
    cases = parity_cases(
        3, seed=6, max_requests=3, max_drafts=4, rule=rule, dtype=dtype, kind="normal", **fixed
    )
    check_sampled(Machine(folder), list(cases), most_ties=0.2)


def check_seeded(machine: Machine, cases: list[Arguments]) -> None:
    recorder = backend.Recorder()
    cases = [seeded_case(case, index) for index, case in enumerate(cases)]
    for case in cases:
        backend.verify_seeded(case, recorder)
    machine.prepare(recorder.variants)
    ties = sum(ties_of_result(c, backend.verify_seeded(c, machine.launch)) for c in cases)
    assert ties <= 1


# Plain ones are below by day, with a large vocabulary.
@pytest.mark.parametrize(
    "filters",
    [pytest.param((), marks=pytest.mark.nightly), ALL],
    ids=["plain", "filtered"],
)
def test_seeded_requests(machine: Machine, filters: tuple[str, ...]) -> None:
    sizes = ((5, 2), (1003, 4), (5000, 4))
    fixed: dict[str, Any] = {"dtype": torch.float32, "filters": filters}
    check_seeded(
        machine,
        [
            case
            for vocab_size, count in sizes
            for case in parity_cases(count, seed=vocab_size, vocab_size=vocab_size, **fixed)
        ],
    )


@pytest.mark.nightly
@pytest.mark.parametrize("filters", [(), ALL], ids=["plain", "filtered"])
def test_trees(machine: Machine, filters: tuple[str, ...]) -> None:
    recorder = backend.Recorder()
    cases = tree_cases(3, seed=7, vocab_size=1003, dtype=torch.float32, filters=filters)
    for case in cases:
        backend.verify_tree(case, recorder)
    machine.prepare(recorder.variants)
    assert sum(ties_of_trees(c, backend.verify_tree(c, machine.launch)) for c in cases) <= 1


def test_seeded_requests_of_a_large_vocabulary(folder: Path) -> None:
    fixed: dict[str, Any] = {"dtype": torch.bfloat16, "filters": ()}
    cases = parity_cases(2, seed=6, vocab_size=LARGE, max_requests=2, max_drafts=2, **fixed)
    check_seeded(Machine(folder), list(cases))


# bfloat16 is read by day where grammar_mask writes it, and in requests of a large vocabulary.
@pytest.mark.parametrize(
    "dtype",
    [pytest.param(d, marks=pytest.mark.nightly if d == torch.bfloat16 else ()) for d in DTYPES],
    ids=str,
)
def test_greedy_requests(machine: Machine, dtype: torch.dtype) -> None:
    cases = [
        *parity_cases(8, seed=7, vocab_size=1003, dtype=dtype),
        *parity_cases(1, seed=8, vocab_size=LARGE, dtype=dtype, max_requests=3),
    ]
    verdicts = [judge_greedy(case, backend.verify_greedy(case, machine.launch)) for case in cases]
    assert_right(verdicts, most_ties=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_grammar_masks(machine: Machine, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(9)
    for vocab_size, extra_words in ((1, 0), (1003, 1), (LARGE, 0)):
        num_words = -(-vocab_size // 32) + extra_words
        low, high = -(2**31), 2**31 - 1
        bitmask = torch.randint(low, high, (3, num_words), generator=generator).int()
        rows = torch.tensor([2, -1, 0], dtype=torch.int32)
        logits = with_wide_stride(torch.randn(4, vocab_size, generator=generator).to(dtype))
        expected = with_wide_stride(logits)
        grammar_mask(expected, bitmask, rows, backend="reference")
        backend.grammar_mask(logits, bitmask, rows, machine.launch)
        assert torch.equal(logits, expected)
        # What lies between the rows is left alone.
        gaps = logits.as_strided((4, 3), (vocab_size + 3, 1), vocab_size)
        assert gaps[:-1].eq(torch.tensor(1e4).to(dtype)).all()


def test_an_impossible_draft_stays_rejected_whatever_follows(machine: Machine) -> None:
    """Weight 0 times the infinite p / q of a draft with q = 0 must not count as a weight of 1."""
    logits = torch.zeros(3, 8)
    logits[0, 1] = float("-inf")
    draft_probs = torch.full((2, 8), 1 / 8)
    draft_probs[1, 2] = 0.0
    case = {
        "logits": logits,
        "draft_token_ids": torch.tensor([1, 2], dtype=torch.int32),
        "cu_num_draft_tokens": torch.tensor([2], dtype=torch.int32),
        "max_draft_len": 2,
        "temperature": torch.ones(1),
        "draft_probs": draft_probs,
        "accept_uniform": torch.tensor([0.5, 0.9], dtype=torch.float64),
        "sample_uniform": torch.tensor([0.3], dtype=torch.float64),
        "rule": "block",
    }
    tokens, counts = backend.verify_sample(case, machine.launch)
    assert counts.tolist() == [1]
    assert 1 not in tokens[0].tolist()


@pytest.mark.parametrize(
    ("drafts", "filters"),
    [
        ("one-hot", ()),
        ("near", ALL),
        # Where one kernel has both, the other ones' reads are in it.
        pytest.param("one-hot", ALL, marks=pytest.mark.nightly),
        pytest.param("near", (), marks=pytest.mark.nightly),
    ],
)
def test_no_drafts_at_all(machine: Machine, drafts: str, filters: tuple[str, ...]) -> None:
    """Nothing of the empty tensors may be read."""
    fixed: dict[str, Any] = {"vocab_size": 1003, "drafts": drafts, "filters": filters}
    cases = parity_cases(1, 1, max_drafts=0, dtype=torch.float32, **fixed)
    assert_right([judge(case, backend.verify_sample(case, machine.launch)) for case in cases])


def test_rows_are_split_among_programs(folder: Path) -> None:
    case = next(iter(parity_cases(1, 2, vocab_size=LARGE, max_requests=1, dtype=torch.float32)))
    grids = []

    def receive(variant: Variant, grid: tuple[int, ...], values: dict[str, Any]) -> None:
        grids.append(grid)

    backend.verify_greedy(case, receive)
    assert grids[0][2] > 1


def control(folder: Path, name: str, values: dict[str, Any], **constants: int) -> None:
    kinds = {torch.Tensor: "*fp32", int: "i32"}
    signature = tuple((name, kinds[type(value)]) for name, value in values.items())
    variant = Variant(CONTROLS, name, signature, tuple(constants.items()))
    Machine(folder).launch(variant, (1,), values)


def test_a_sound_control_runs(folder: Path) -> None:
    x, out = torch.arange(100.0), torch.zeros(1)
    control(folder, "sound", {"x": x, "out": out, "size": 100, "stride": 100}, BLOCK=64)
    assert out.item() == x.sum()


def test_an_access_outside_of_a_tensor_is_reported(folder: Path) -> None:
    x, out = torch.arange(64.0), torch.zeros(1)
    control(folder, "out_of_bounds", {"x": x, "out": out, "size": 0}, BLOCK=64)
    assert out.item() == x.sum()
    with pytest.raises(AccessError, match=r"program \(0, 0, 0\) of \(1,\) touched memory outside"):
        control(folder, "out_of_bounds", {"x": x[:63], "out": out, "size": 0}, BLOCK=64)


def test_a_dropped_mask_does_reach_outside(folder: Path) -> None:
    """What the linter calls a dropped mask is one."""
    values = {"x": torch.arange(200.0), "out": torch.zeros(16), "size": 200}
    with pytest.raises(AccessError, match="touched memory outside"):
        control(folder, "dropped_load_mask", values, SIDE=16)


def test_a_grid_that_ascend_refuses_is_refused(folder: Path) -> None:
    case = next(iter(parity_cases(1, 2, vocab_size=5, dtype=torch.float32)))

    def launch(variant: Variant, grid: tuple[int, ...], values: dict[str, Any]) -> None:
        Machine(folder).launch(variant, (MOST_PROGRAMS, 2), values)

    with pytest.raises(ValueError, match=f"more than {MOST_PROGRAMS} programs"):
        backend.verify_greedy(case, launch)


def test_a_change_of_the_ir_is_noticed(folder: Path, tmp_path: Path) -> None:
    """The lowered IR is what runs: change it, and results are wrong."""
    case = next(iter(parity_cases(1, 12, vocab_size=1003, dtype=torch.float32, kind="normal")))
    assert not judge_greedy(case, backend.verify_greedy(case, Machine(folder).launch)).complaints
    recorder = backend.Recorder()
    backend.verify_greedy(case, recorder)
    for place in lower(recorder.variants, tmp_path).values():
        text = (place / "linalg.mlir").read_text()
        (place / "linalg.mlir").write_text(text.replace("arith.maxnumf", "arith.minnumf"))
    assert judge_greedy(case, backend.verify_greedy(case, Machine(tmp_path).launch)).complaints
