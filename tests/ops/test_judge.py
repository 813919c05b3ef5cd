"""The judge of parity lets rounding pass, and nothing else."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

from tests.ops import wrong_rules as wrong
from tests.ops.batches import Arguments, float64, int32
from tests.ops.cases import parity_cases
from tests.ops.parity import Outcome, Result, assert_right, judge, judge_greedy
from tests.ops.sharp import sharpen
from vllm_ascend_spec.ops import verify_sample
from vllm_ascend_spec.ops.verify_sample import reference

Probs = Callable[..., torch.Tensor]
right_probs = reference.target_probs


def probs_in_float32(
    logits: torch.Tensor, temperature: torch.Tensor, top_k: Any, top_p: Any, min_p: Any
) -> torch.Tensor:
    """Return the target's distribution as a backend in float32 would compute it."""
    x = logits.float().masked_fill(logits.isnan(), float("-inf"))
    infinite = x == float("inf")
    x = x.masked_fill(infinite.any(-1, keepdim=True) & ~infinite, float("-inf"))
    x = x.masked_fill(infinite, 0.0)
    x[(x == float("-inf")).all(-1), 0] = 0.0
    weights = (
        (x - x.amax(-1, keepdim=True)) / temperature.where(temperature > 0, 1)[:, None]
    ).exp()
    if min_p is not None:
        weights = weights.where(weights >= min_p[:, None], 0)
    if top_k is not None:
        size = x.shape[-1]
        k = top_k.where(top_k > 0, size).clamp(max=size).long()[:, None]
        weights = weights.where(x >= x.sort(-1, descending=True).values.gather(-1, k - 1), 0)
    if top_p is not None:
        ordered = weights.sort(-1, descending=True).values
        before = ordered.cumsum(-1) - ordered
        goal = top_p[:, None] * weights.sum(-1, keepdim=True)
        kept = ((before < goal) | (top_p[:, None] >= 1)).sum(-1, keepdim=True)
        weights = weights.where(weights >= ordered.gather(-1, kept.clamp(min=1) - 1), 0)
    return (weights / weights.sum(-1, keepdim=True)).double()


def noisy_probs(level: float) -> Probs:
    """Return the right distribution with a relative error of ``level`` in each probability."""
    generator = torch.Generator().manual_seed(0)

    def probs(*arguments: Any) -> torch.Tensor:
        right = right_probs(*arguments)
        noise = torch.randn(right.shape, generator=generator, dtype=right.dtype)
        noisy = right * (1 + level * noise)
        return noisy / noisy.sum(-1, keepdim=True)

    return probs


def uniforms_in_float32(arguments: Arguments) -> Arguments:
    """Return the arguments with uniforms cut, not rounded, to 24 bits."""
    cut = {
        name: (arguments[name] * 2**24).floor() / 2**24
        for name in ("accept_uniform", "sample_uniform")
    }
    return {**arguments, **cut}


def outcomes(cases: Iterable[Arguments], probs: Probs) -> Counter[Outcome]:
    """Judge the reference with other target probabilities and uniforms in float32."""
    counter: Counter[Outcome] = Counter()
    for case in cases:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reference, "target_probs", probs)
            result = verify_sample(**uniforms_in_float32(case), backend="reference")
        counter.update(judge(case, result).outcomes)
    return counter


def test_float32_is_within_rounding() -> None:
    seen = outcomes(parity_cases(1500, seed=0), probs_in_float32)
    assert seen[Outcome.WRONG] == 0
    assert 0 < seen[Outcome.TIE] < 0.01 * seen.total()


@functools.cache
def sharp_cases() -> list[Arguments]:
    return [sharpen(case, i) for i, case in enumerate(parity_cases(300, 1, max_vocab=300))]


def test_float32_is_within_rounding_beside_thresholds() -> None:
    seen = outcomes(sharp_cases(), probs_in_float32)
    assert seen[Outcome.WRONG] == 0


# By day the smallest, which is found least easily, and one that is found far more often.
@pytest.mark.parametrize(
    ("level", "least"),
    [(1e-5, 0.01), pytest.param(1e-4, 0.1, marks=pytest.mark.nightly), (1e-3, 0.2)],
)
def test_errors_above_rounding_are_wrong(level: float, least: float) -> None:
    seen = outcomes(sharp_cases()[:200], noisy_probs(level))
    assert seen[Outcome.WRONG] > least * seen.total()


@pytest.mark.parametrize(
    "mistake", [wrong.without_top_p, wrong.top_p_first, wrong.filters_before_temperature]
)
def test_wrong_filters_are_wrong(mistake: Probs) -> None:
    cases = parity_cases(200, 2, max_vocab=300, filters=("top_k", "top_p", "min_p"))
    seen = outcomes(cases, mistake)
    assert seen[Outcome.WRONG] > 0.005 * seen.total()


@pytest.mark.parametrize(
    "mistake",
    [
        wrong.by_products_of_uniforms,
        wrong.by_products_with_token_residual,
        wrong.by_weights_alone,
        wrong.with_unlimited_weights,
        wrong.up_to_the_first_refused,
    ],
)
def test_wrong_block_rules_are_wrong(monkeypatch: pytest.MonkeyPatch, mistake: Any) -> None:
    seen: Counter[Outcome] = Counter()
    for case in parity_cases(300, 3, max_vocab=300, rule="block", drafts="near"):
        if not case["draft_token_ids"].numel():
            continue
        with monkeypatch.context() as patch:
            wrong.put_in(patch, "block", mistake)
            result = verify_sample(**case, backend="reference")
        seen.update(judge(case, result).outcomes)
    assert seen[Outcome.WRONG] > 0.005 * seen.total()


# A request whose margins are wide: p = .2 .5 .3 in each row.
def case(**changes: Any) -> Arguments:
    logits = torch.tensor([[0.2, 0.5, 0.3]]).log().repeat(3, 1)
    return {
        "logits": logits,
        "draft_token_ids": int32([1, 2]),
        "cu_num_draft_tokens": int32([2]),
        "max_draft_len": 3,
        "temperature": torch.ones(1),
        "accept_uniform": float64([0.4, 0.6]),
        "sample_uniform": float64([0.5]),
        **changes,
    }


def result(tokens: list[int], count: int) -> Result:
    return int32([tokens]), int32([count])


@pytest.mark.parametrize("rule", ["token", "block"])
@pytest.mark.parametrize(
    ("tokens", "count", "complaint"),
    [
        ([1, 0, -1, -1], 2, "token 0 does not follow"),
        ([1, 2, -1, -1], 2, "token 2 does not follow"),
        ([1, 3, -1, -1], 2, "token 3 is not in the vocabulary"),
        ([1, -1, -1, -1], 2, "token -1 is not in the vocabulary"),
        ([1, 2, 1, -1], 3, "draft 1 is accepted: uniform 0.6, threshold 0.3"),
        ([2, -1, -1, -1], 1, "draft 0 is rejected: uniform 0.4, threshold 0.5"),
        ([0, 1, -1, -1], 2, "the tokens before the last are not the drafts"),
        ([1, 1, -1, -1], 1, "the padding is not -1"),
        ([1, 1, 0, -1], 2, "the padding is not -1"),
        ([1, 1, -1, -1], 0, "0 tokens of 2 drafts"),
        ([1, 2, 1, 1], 4, "4 tokens of 2 drafts"),
    ],
)
def test_every_mistake_is_named(rule: str, tokens: list[int], count: int, complaint: str) -> None:
    if rule == "block":
        # h_1 = w (1 - p) / (1 - w p) = .5 · .7 / .85 = .41; h_2 = w_2 = .15.
        complaint = complaint.replace("0.3", "0.15").replace("0.5", "0.4117647")
    arguments = case(rule=rule)
    right, _ = verify_sample(**arguments, backend="reference")
    assert right.tolist() == [[1, 1, -1, -1]]
    verdict = judge(arguments, result(tokens, count))
    assert verdict.outcomes == (Outcome.WRONG,)
    assert complaint in verdict.complaints[0]
    assert "request 0" in verdict.complaints[0]
    with pytest.raises(AssertionError, match="1 of 1 wrong"):
        assert_right([verdict])


def test_draft_of_minus_one_cannot_be_accepted() -> None:
    arguments = case(draft_token_ids=int32([1, -1]))
    assert not judge(arguments, result([1, -1, 1, -1], 3)).is_right


def test_token_outside_the_filters_is_wrong_however_small_the_uniform() -> None:
    for uniform in (0.0, 1e-7):
        arguments = case(
            top_k=int32([2]),
            accept_uniform=float64([0.9, 0.9]),
            sample_uniform=float64([uniform]),
        )
        assert not judge(arguments, result([0, -1, -1, -1], 1)).is_right


def test_excluded_draft_is_not_accepted_however_small_the_uniform() -> None:
    for rule in ("token", "block"):
        arguments = case(
            draft_token_ids=int32([0, 2]),
            top_k=int32([2]),
            accept_uniform=float64([0.0, 0.9]),
            rule=rule,
        )
        assert not judge(arguments, result([0, 1, -1, -1], 2)).is_right


@pytest.mark.parametrize("rule", ["token", "block"])
@pytest.mark.parametrize(("distance", "outcome"), [(1e-6, Outcome.TIE), (4e-6, Outcome.WRONG)])
def test_decisions_may_fall_either_way_within_rounding(
    rule: str, distance: float, outcome: Outcome
) -> None:
    one_draft = {
        "logits": torch.tensor([[0.2, 0.5, 0.3]]).log().repeat(2, 1),
        "draft_token_ids": int32([1]),
        "cu_num_draft_tokens": int32([1]),
        "rule": rule,
    }
    for uniform, other in (
        (0.5 - distance, result([2, -1, -1, -1], 1)),
        (0.5 + distance, result([1, 1, -1, -1], 2)),
    ):
        arguments = case(**one_draft, accept_uniform=float64([uniform]))
        assert judge(arguments, other).outcomes == (outcome,)


@pytest.mark.parametrize(("distance", "outcome"), [(1e-6, Outcome.TIE), (4e-6, Outcome.WRONG)])
def test_samples_may_fall_either_way_within_rounding(distance: float, outcome: Outcome) -> None:
    no_drafts = {
        "logits": torch.tensor([[0.2, 0.5, 0.3]]).log(),
        "draft_token_ids": int32([]),
        "cu_num_draft_tokens": int32([0]),
        "accept_uniform": float64([]),
    }
    for move, token in ((-distance, 1), (distance, 0)):
        arguments = case(**no_drafts, sample_uniform=float64([0.2 + move]))
        assert judge(arguments, result([token, -1, -1, -1], 1)).outcomes == (outcome,)


@pytest.mark.parametrize(("distance", "outcome"), [(1e-6, Outcome.TIE), (4e-6, Outcome.WRONG)])
@pytest.mark.parametrize(
    ("name", "threshold"), [("top_p", 0.5), ("top_p", 0.8), ("min_p", 0.4), ("min_p", 0.6)]
)
def test_filters_may_cut_either_way_within_rounding(
    name: str, threshold: float, distance: float, outcome: Outcome
) -> None:
    # Sampled at the far end: the last token that is kept, of .5, .3 and .2.
    logits = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64).log().float()
    no_drafts = {
        "logits": logits,
        "draft_token_ids": int32([]),
        "cu_num_draft_tokens": int32([0]),
        "accept_uniform": float64([]),
        "sample_uniform": float64([1 - 1e-9]),
    }
    last = {0.5: (0, 1), 0.8: (1, 2), 0.4: (2, 1), 0.6: (1, 0)}[threshold]
    for move, token in ((-distance, last[1]), (distance, last[0])):
        arguments = case(**no_drafts, **{name: torch.tensor([threshold + move])})
        assert judge(arguments, result([token, -1, -1, -1], 1)).outcomes == (outcome,)


def test_greedy_requests_have_no_leeway() -> None:
    arguments = case(temperature=torch.zeros(1))
    assert judge(arguments, result([1, 1, -1, -1], 2)).is_right
    verdict = judge(arguments, result([1, 2, 1, -1], 3))
    assert verdict.complaints[0].endswith("logits of 3")
    assert "greedy" in verdict.complaints[0]
    names = ("logits", "draft_token_ids", "cu_num_draft_tokens", "max_draft_len")
    greedy = {name: arguments[name] for name in names}
    assert judge_greedy(greedy, result([1, 1, -1, -1], 2)).is_right
    assert not judge_greedy(greedy, result([1, 2, -1, -1], 2)).is_right
    assert not judge_greedy(greedy, result([1, 1, -1, -1], 1)).is_right


@pytest.mark.parametrize(
    "other",
    [
        (torch.tensor([[1, 1, -1, -1]]), int32([2])),
        (int32([[1, 1, -1]]), int32([2])),
        (int32([[1, 1, -1, -1]]), torch.tensor([2])),
        (int32([[1, 1, -1, -1]]), int32([[2]])),
    ],
)
def test_results_of_another_form_are_wrong(other: Result) -> None:
    assert not judge(case(), other).is_right


def test_too_many_ties_are_refused() -> None:
    arguments = case(sample_uniform=float64([0.4 - 1e-6]))
    verdict = judge(arguments, result([1, 1, -1, -1], 2))
    assert verdict.count(Outcome.TIE) <= 1
    tie = type(verdict)((Outcome.TIE,) * 2 + (Outcome.EQUAL,) * 98, ())
    with pytest.raises(AssertionError, match="2 of 100 requests are ties"):
        assert_right([tie])
    assert_right([tie], most_ties=0.02)
