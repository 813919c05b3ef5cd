"""The AscendC kernels under the emulator, all of its checks on, against the reference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ops.ascendc.kernels import CORES, SHORT_LISTS, emulators, make_emulator
from tests.ops.batches import RULES, Arguments
from tests.ops.broken_drafts import assert_in_range, vanishing_product, with_any_draft_probs
from tests.ops.cases import KINDS, parity_cases
from tests.ops.cpu.test_extremes import extreme_cases
from tests.ops.emulator.build import requires_compiler
from tests.ops.parity import Outcome, Verdict, assert_right, judge, judge_greedy
from tests.ops.sharp import sharpen
from vllm_ascend_spec.ops import verify_greedy, verify_sample
from vllm_ascend_spec.ops.ascendc_library import use

pytestmark = requires_compiler
GREEDY_ARGUMENTS = ("logits", "draft_token_ids", "cu_num_draft_tokens", "max_draft_len")


def verdicts(cases: Iterable[Arguments], defines: tuple[str, ...] = ()) -> list[Verdict]:
    """Judge each case, on different numbers of cores and cut in different ways."""
    cases = list(cases)
    found = []
    sizes = (case["logits"].shape[1] for case in cases)
    for case, emulator in zip(cases, emulators(sizes, defines=defines), strict=True):
        with use(emulator):
            found.append(judge(case, verify_sample(**case, backend="ascendc")))
    return found


def test_sampling_equals_the_reference_up_to_rounding() -> None:
    assert_right(verdicts(parity_cases(480, seed=10)))


def kinds_and_rules() -> Iterator[Any]:
    """Yield both; by day each kind with one rule, and cases of all kinds with both above."""
    for index, kind in enumerate(KINDS[1:]):
        for rule in RULES:
            by_day = rule == RULES[index % 2]
            yield pytest.param(kind, rule, marks=() if by_day else pytest.mark.nightly)


@pytest.mark.parametrize(("kind", "rule"), list(kinds_and_rules()))
def test_every_kind_of_logits_equals_the_reference(kind: str, rule: str) -> None:
    cases = parity_cases(48, seed=11, kind=kind, rule=rule, max_vocab=600)
    assert_right(verdicts(cases), most_ties=0.02)


@pytest.mark.parametrize("rule", RULES)
def test_broken_drafts_equal_the_reference(rule: str) -> None:
    cases = parity_cases(96, seed=15, drafts="broken", rule=rule, max_vocab=600)
    assert_right(verdicts(cases), most_ties=0.02)


@settings(max_examples=150)
@given(
    case=with_any_draft_probs(),
    mode=st.sampled_from(["split", "by request"]),
    nan_mode=st.sampled_from([0, 1]),
)
def test_any_draft_probs_equal_the_reference(case: Arguments, mode: str, nan_mode: int) -> None:
    with use(make_emulator(num_cores=3, mode=mode, nan_mode=nan_mode)):
        result = verify_sample(**case, backend="ascendc")
    assert_in_range(case, result)
    assert_right([judge(case, result)], most_ties=1)


def test_numbers_beside_thresholds_fall_on_the_references_side() -> None:
    cases = (sharpen(case, i) for i, case in enumerate(parity_cases(192, seed=12, max_vocab=1100)))
    assert_right(verdicts(cases))


@pytest.mark.parametrize("filters", [("top_k",), ("top_p",), ("top_k", "top_p", "min_p")])
def test_searches_that_narrow_their_brackets_equal_the_reference(filters: tuple[str, ...]) -> None:
    cases = parity_cases(144, seed=13, filters=filters)
    assert_right(verdicts(cases, SHORT_LISTS))


def test_greedy_equals_the_reference() -> None:
    found = []
    cases = list(parity_cases(288, seed=14))
    for case, emulator in zip(cases, emulators(c["logits"].shape[1] for c in cases), strict=True):
        arguments = {name: case[name] for name in GREEDY_ARGUMENTS}
        with use(emulator):
            result = verify_greedy(**arguments, backend="ascendc")
        found.append(judge_greedy(arguments, result))
    assert_right(found, most_ties=0)


@pytest.mark.parametrize("defines", [(), SHORT_LISTS])
@settings(max_examples=150)
@given(
    case=extreme_cases(),
    cores=st.sampled_from(CORES),
    mode=st.sampled_from(["split", "by request"]),
    nan_mode=st.sampled_from([0, 1]),
)
def test_the_ends_of_every_range_equal_the_reference(
    defines: tuple[str, ...], case: Arguments, cores: int, mode: str, nan_mode: int
) -> None:
    with use(make_emulator(defines=defines, num_cores=cores, mode=mode, nan_mode=nan_mode)):
        result = verify_sample(**case, backend="ascendc")
    assert_right([judge(case, result)], most_ties=1)


def test_a_product_too_small_for_float32_is_not_nothing() -> None:
    case = vanishing_product()
    with use(make_emulator(num_cores=3, mode="split", nan_mode=0)):
        result = verify_sample(**case, backend="ascendc")
    assert judge(case, result).outcomes == (Outcome.EQUAL,)
