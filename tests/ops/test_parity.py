"""Backends give the reference's tokens, up to rounding as ``tests/ops/parity.py`` judges it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ops import batches
from tests.ops.batches import RULES, Arguments, backends_on_cpu
from tests.ops.cases import DRAFTS, FILTERS, KINDS, parity_cases
from tests.ops.parity import Outcome, Verdict, assert_right, judge, judge_greedy
from tests.ops.sharp import sharpen
from vllm_ascend_spec.config.options import MAX_DRAFT_TOKENS
from vllm_ascend_spec.ops import verify_greedy, verify_sample
from vllm_ascend_spec.ops.verify_greedy import OP as GREEDY
from vllm_ascend_spec.ops.verify_sample import OP as SAMPLE

NUM_CASES = 2000
OTHERS = backends_on_cpu(SAMPLE, without=("reference",))
OTHERS_GREEDY = backends_on_cpu(GREEDY, without=("reference",))
GREEDY_ARGUMENTS = ("logits", "draft_token_ids", "cu_num_draft_tokens", "max_draft_len")


def verdicts(cases: Iterator[Arguments], backend: str) -> list[Verdict]:
    return [judge(case, verify_sample(**case, backend=backend)) for case in cases]


@pytest.mark.parametrize("backend", OTHERS)
def test_sampling_equals_the_reference_up_to_rounding(backend: str) -> None:
    assert_right(verdicts(parity_cases(NUM_CASES, seed=0), backend))


@pytest.mark.parametrize("backend", OTHERS)
@pytest.mark.parametrize("drafts", DRAFTS[2:])
@pytest.mark.parametrize("rule", RULES)
def test_every_kind_of_draft_equals_the_reference(backend: str, drafts: str, rule: str) -> None:
    cases = parity_cases(200, seed=1, drafts=drafts, rule=rule, max_vocab=600)
    assert_right(verdicts(cases, backend), most_ties=0.02)


@pytest.mark.parametrize("backend", OTHERS)
@pytest.mark.parametrize("kind", KINDS[1:])
def test_every_kind_of_logits_equals_the_reference(backend: str, kind: str) -> None:
    assert_right(verdicts(parity_cases(200, seed=2, kind=kind, max_vocab=600), backend))


# Of single filters by day top-p, whose threshold is a sum; all of them together have the others.
@pytest.mark.parametrize("backend", OTHERS)
@pytest.mark.parametrize(
    "filters",
    [
        (),
        pytest.param(("top_k",), marks=pytest.mark.nightly),
        ("top_p",),
        pytest.param(("min_p",), marks=pytest.mark.nightly),
        FILTERS,
    ],
)
def test_numbers_beside_thresholds_fall_on_the_references_side(
    backend: str, filters: tuple[str, ...]
) -> None:
    cases = parity_cases(250, seed=3, max_vocab=600, filters=filters)
    assert_right(verdicts((sharpen(case, i) for i, case in enumerate(cases)), backend))


@pytest.mark.parametrize("backend", OTHERS)
@pytest.mark.parametrize("vocab", [32000, 151936])
def test_large_vocabularies_equal_the_reference(backend: str, vocab: int) -> None:
    cases = parity_cases(6, seed=4, vocab_size=vocab, max_requests=3, max_drafts=3)
    assert_right(verdicts((sharpen(case, i) for i, case in enumerate(cases)), backend), most_ties=1)


@pytest.mark.parametrize("backend", OTHERS)
@settings(max_examples=150)
@given(
    seed=batches.seeds,
    vocab=st.integers(1, 40),
    requests=st.integers(1, 5),
    drafts=st.integers(0, 6),
    dtype=batches.dtypes,
    rule=st.sampled_from(RULES),
)
def test_any_shape_equals_the_reference(
    backend: str, seed: int, vocab: int, requests: int, drafts: int, dtype: torch.dtype, rule: str
) -> None:
    cases = parity_cases(
        1,
        seed,
        max_requests=requests,
        max_drafts=drafts,
        vocab_size=vocab,
        dtype=dtype,
        rule=rule,
    )
    assert_right(verdicts(cases, backend), most_ties=1)


@pytest.mark.parametrize("backend", OTHERS_GREEDY)
def test_greedy_equals_the_reference(backend: str) -> None:
    verdicts = []
    for case in parity_cases(NUM_CASES, seed=5):
        arguments = {name: case[name] for name in GREEDY_ARGUMENTS}
        verdicts.append(judge_greedy(arguments, verify_greedy(**arguments, backend=backend)))
    assert_right(verdicts, most_ties=0)


@pytest.mark.parametrize("backend", OTHERS)
@pytest.mark.parametrize("rule", RULES)
def test_as_many_drafts_as_an_engine_may_make(backend: str, rule: str) -> None:
    how: dict[str, Any] = {"max_requests": 3, "max_drafts": MAX_DRAFT_TOKENS, "max_vocab": 600}
    cases = list(parity_cases(120, seed=9, rule=rule, **how))
    assert max(case["max_draft_len"] for case in cases) >= MAX_DRAFT_TOKENS
    assert_right(verdicts(iter(cases), backend), most_ties=0.05)
    greedy = []
    for case in cases:
        arguments = {name: case[name] for name in GREEDY_ARGUMENTS}
        greedy.append(judge_greedy(arguments, verify_greedy(**arguments, backend=backend)))
    assert_right(greedy, most_ties=0)


def test_cases_are_of_every_kind() -> None:
    cases = list(parity_cases(300, seed=0))
    seen: dict[str, set[Any]] = {
        "dtype": {case["logits"].dtype for case in cases},
        "wide": {case["logits"].stride(0) > case["logits"].shape[1] for case in cases},
        "rule": {case["rule"] for case in cases},
        "one-hot": {"draft_probs" not in case for case in cases},
        "filters": {name for case in cases for name in ("top_k", "top_p", "min_p") if name in case},
        "greedy": {t == 0 for case in cases for t in case["temperature"].tolist()},
        "broken": {bool(case["logits"].isnan().any()) for case in cases},
        "infinite": {bool((case["logits"] == float("inf")).any()) for case in cases},
        "no draft": {-1 in case["draft_token_ids"].tolist() for case in cases},
        "gaps": {case["accept_uniform"].is_contiguous() for case in cases},
        "lengths": {n for case in cases for n in case["cu_num_draft_tokens"].diff().tolist()},
    }
    sizes = {name: len(values) for name, values in seen.items()}
    assert sizes == {
        "dtype": 3, "wide": 2, "rule": 2, "one-hot": 2, "filters": 3, "greedy": 2, "broken": 2,
        "infinite": 2, "no draft": 2, "gaps": 2, "lengths": 6,
    }  # fmt: skip


def test_cases_are_the_same_for_the_same_seed() -> None:
    for a, b in zip(parity_cases(5, seed=7), parity_cases(5, seed=7), strict=True):
        assert a.keys() == b.keys()
        for name, value in a.items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(value, b[name], rtol=0, atol=0, equal_nan=True)
            else:
                assert value == b[name]
    (other,) = parity_cases(1, seed=8)
    (first,) = parity_cases(1, seed=7)
    assert other["logits"].shape != first["logits"].shape


def test_reference_is_equal_to_itself() -> None:
    for verdict in verdicts(parity_cases(100, seed=0), "reference"):
        assert set(verdict.outcomes) == {Outcome.EQUAL}
