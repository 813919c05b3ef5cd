"""The emulated AscendC kernels are lossless: their output has the target's distribution."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.ops.ascendc.kernels import make_emulator
from tests.ops.batches import RULES
from tests.ops.emulator.build import requires_compiler
from tests.ops.enumeration import (
    Branches,
    Case,
    distance_to_target,
    find_steps,
    steps_explain,
    tolerance,
)
from tests.ops.markov import Models, count_pairs, deviations
from tests.ops.oracle import Sampling
from tests.ops.test_chi_square import BOUND
from tests.ops.test_enumeration import (
    CERTAIN,
    EXTREME,
    FILTERED,
    SAMPLED,
    WITH_FILTERS,
    WITHOUT_DRAFT,
    describe,
)
from vllm_ascend_spec.ops.ascendc_library import use

pytestmark = requires_compiler
LONG = [*WITH_FILTERS, *(case for case in WITHOUT_DRAFT if case.without_draft != 2)]
CASES = [*SAMPLED[:5], *CERTAIN, *(replace(case, num_drafts=2) for case in LONG), *EXTREME]


@pytest.fixture(autouse=True)
def emulator() -> Iterator[None]:
    with use(make_emulator(num_cores=3)):
        yield


def with_marks(case: Case) -> Any:
    """By day a filter is with sampled drafts; one certain draft has all of them together."""
    by_day = case.sampled or case.sampling in (Sampling(), FILTERED[-1])
    return pytest.param(case, marks=() if by_day else pytest.mark.nightly)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("case", [with_marks(case) for case in CASES], ids=describe)
def test_enumerated_output_has_the_targets_distribution(case: Case, rule: str) -> None:
    branches = Branches.of(replace(case, rule=rule), "ascendc")
    steps = find_steps(branches)
    assert steps_explain(branches, steps, columns=30)
    assert distance_to_target(branches, steps) < tolerance("ascendc")


# By day each rule and each kind of drafts once; above, their exact distributions are enumerated.
@pytest.mark.parametrize(
    ("sampled", "rule"),
    [
        (False, "token"),
        pytest.param(False, "block", marks=pytest.mark.nightly),
        pytest.param(True, "token", marks=pytest.mark.nightly),
        (True, "block"),
    ],
)
def test_samples_are_distributed_as_the_targets(sampled: bool, rule: str) -> None:
    models = Models(sampled, Sampling(temperature=0.8, top_k=20, top_p=0.95), rule)
    for number in deviations(models, count_pairs(models, 10_000, 10_000, "ascendc")):
        assert abs(number) < BOUND
