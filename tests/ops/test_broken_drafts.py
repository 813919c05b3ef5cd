"""Whatever ``draft_probs`` holds: tokens of the vocabulary, and the same by every backend."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
import torch
from hypothesis import given, settings

from tests.ops import oracle
from tests.ops.batches import RULES, SAMPLE_BACKENDS, Arguments, backends_on_cpu, int32
from tests.ops.broken_drafts import assert_in_range, vanishing_product, with_any_draft_probs
from tests.ops.cases import BROKEN, parity_cases
from tests.ops.parity import Outcome, assert_right, judge
from vllm_ascend_spec.ops import verify_sample
from vllm_ascend_spec.ops.verify_sample import OP


def check(cases: Iterable[Arguments], backend: str, most_ties: float) -> None:
    """Judge a backend by the reference, and the reference by the oracle."""
    verdicts = []
    for case in cases:
        result = verify_sample(**case, backend=backend)
        assert_in_range(case, result)
        if backend == "reference":
            tokens, counts = oracle.expected(case)
            result = int32(tokens), int32(counts)
        verdicts.append(judge(case, result))
    assert_right(verdicts, most_ties=most_ties)


@pytest.mark.parametrize("backend", SAMPLE_BACKENDS)
@pytest.mark.parametrize("rule", RULES)
def test_broken_drafts_give_every_backend_the_same_tokens(backend: str, rule: str) -> None:
    check(parity_cases(500, 61, drafts="broken", rule=rule, max_vocab=600), backend, 0.01)


# The reference by day above, with the oracle, too.
@pytest.mark.parametrize(
    "backend",
    [
        *backends_on_cpu(OP, without=("reference",)),
        pytest.param("reference", marks=pytest.mark.nightly),
    ],
)
@settings(max_examples=500)
@given(case=with_any_draft_probs())
def test_any_draft_probs_give_every_backend_the_same_tokens(backend: str, case: Arguments) -> None:
    check([case], backend, most_ties=1)


@pytest.mark.parametrize("backend", SAMPLE_BACKENDS)
def test_a_product_too_small_for_float32_is_not_nothing(backend: str) -> None:
    case = vanishing_product()
    result = verify_sample(**case, backend=backend)
    assert judge(case, result).outcomes == (Outcome.EQUAL,)
    assert result[0].tolist() == [[1, 0, 1, 1, 1]]


def test_broken_drafts_hold_what_they_say() -> None:
    cases = [case for case in parity_cases(60, 61, drafts="broken") if len(case["draft_probs"])]
    entries = torch.cat([case["draft_probs"].flatten() for case in cases])
    for value in torch.tensor(BROKEN):
        assert bool((entries.isnan() if value.isnan() else entries == value).any())
    rows = [row for case in cases for row in case["draft_probs"]]
    drafts = [draft for case in cases for draft in case["draft_token_ids"].tolist()]
    own = [float(row[draft]) for row, draft in zip(rows, drafts, strict=True) if draft >= 0]
    shares = {
        "whole rows": sum(bool(row.isnan().all()) for row in rows),
        "rows in part": sum(0 < int(row.isnan().sum()) < len(row) for row in rows),
        "own": sum(math.isnan(q) for q in own),
        "others": sum(
            bool(row.isnan().any()) and draft >= 0 and not bool(row[draft].isnan())
            for row, draft in zip(rows, drafts, strict=True)
        ),
    }
    assert min(shares.values()) >= 0.02 * len(rows), shares
