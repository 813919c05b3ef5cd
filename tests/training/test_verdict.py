"""What measured figures say: which head is kept, how many drafts are best, whether it pays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vllm_ascend_spec.training import verdict
from vllm_ascend_spec.training.contenders import CONTENDERS, FROM, HEAD, NONE, SUFFIX
from vllm_ascend_spec.training.measure import GREEDY, REQUESTS, SAMPLED
from vllm_ascend_spec.training.settings import Settings


def measured(
    tokens: float,
    *shares: float,
    step_s: float = 0.1,
    answers: Any = ((1, 2),),
    sampled: float | None = None,
) -> Any:
    """Return figures of 100 steps of one request, the same for each kind of request.

    Args:
        tokens: per step.
        shares: of accepted drafts by position.
        step_s: seconds of a step.
        answers: tokens of each.
        sampled: tokens per step of requests that sample, where they are others.
    """
    found = {
        "tokens_per_step": tokens,
        "per_position": list(shares),
        "steps": 100,
        "seconds": step_s * 100,
        "tokens_per_second": tokens / step_s,
        "answers": [list(each) for each in answers],
    }
    other = {**found, "tokens_per_step": tokens if sampled is None else sampled}
    return {kind: found if kind == GREEDY else other for kind in REQUESTS}


PLAIN = measured(1.0)


@pytest.mark.parametrize(
    ("new", "old", "kept"), [(2.0, 1.9, HEAD), (2.0, 2.0, HEAD), (1.9, 2.0, FROM)]
)
def test_the_better_head_is_kept(new: float, old: float, kept: str) -> None:
    assert verdict.kept({NONE: PLAIN, FROM: measured(old), HEAD: measured(new)}) == kept


def test_a_head_that_is_worse_for_requests_that_sample_is_not_kept() -> None:
    """A little more when greedy does not make up for it."""
    results = {NONE: PLAIN, FROM: measured(2.0, sampled=2.0), HEAD: measured(2.1, sampled=1.2)}
    assert verdict.kept(results) == FROM
    results[HEAD] = measured(2.1, sampled=1.95)
    assert verdict.kept(results) == HEAD


def test_without_another_head_the_new_one_is_kept() -> None:
    assert verdict.kept({NONE: PLAIN, SUFFIX: measured(9.0), HEAD: measured(1.0)}) == HEAD


@pytest.mark.parametrize(
    ("shares", "step_s", "k"),
    [
        # Drafts that cost nothing: each helps.
        ((0.8, 0.5, 0.1), 0.1, 3),
        # The third adds 0.1 tokens to 2.3 and a third of 0.06 s to 0.14 s.
        ((0.8, 0.5, 0.1), 0.16, 2),
        # Each draft takes as long as half a step of the target: one of them pays at most.
        ((0.8, 0.3, 0.1), 0.25, 1),
        # None pays; one is the least that a head is served with.
        ((0.1, 0.0, 0.0), 0.4, 1),
    ],
)
def test_as_many_drafts_as_give_most(shares: tuple[float, ...], step_s: float, k: int) -> None:
    found = measured(1 + sum(shares), *shares, step_s=step_s)
    assert verdict.best_k(found[GREEDY], PLAIN[GREEDY], 1) == k


def test_same_texts_are_counted() -> None:
    plain = measured(1.0, answers=[(1, 2), (3, 4)])
    other = measured(2.0, 0.5, answers=[(1, 2), (3, 5)])
    assert verdict.same_texts({NONE: plain, HEAD: other}) == {HEAD: {GREEDY: 1, SAMPLED: 1}}


def report(kept: str = HEAD, speedup: float = 2.0, **results: Any) -> dict[str, Any]:
    return {
        "kept": kept,
        "speedup": speedup,
        "requests_at_once": 8,
        "prompts": 1,
        "left_out": {},
        "same_texts": {HEAD: {GREEDY: 1, SAMPLED: 0}},
        "results": {NONE: PLAIN, **results},
    }


def test_the_table_has_a_row_for_each() -> None:
    found = report(suffix=measured(1.5, 0.4, 0.1), head=measured(2.25, 0.75, 0.5))
    title, head, suffix, none = verdict.table(found)
    assert "tokens/step greedy" in title
    assert head.split() == ["new", "head", "2.25", "2.25", "22", "75%", "50%"]
    assert suffix.startswith("suffix ")
    assert none.startswith("no speculation ")


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (report(head=measured(2.0)), None),
        (report(suffix=measured(1.5), head=measured(2.0)), None),
        (
            report(suffix=measured(2.5), head=measured(2.0)),
            "the new head does not pay beside suffix, which needs no training: 2.00 and 2.50 "
            "greedy, 2.00 and 2.50 T=0.8 tokens per step; ",
        ),
        (
            report(suffix=measured(1.9, sampled=2.5), head=measured(2.0)),
            "the new head does not pay beside suffix, which needs no training: 2.00 and 1.90 "
            "greedy, 2.00 and 2.50 T=0.8 tokens per step; ",
        ),
        (
            report(**{FROM: measured(2.0), HEAD: measured(2.5)}),
            "the new head beside the one of --from: +25.0% greedy (2.50, before 2.00), "
            "+25.0% T=0.8 (2.50, before 2.00) tokens per step on the held-out prompts",
        ),
        (
            report(**{FROM: measured(2.0), HEAD: measured(2.5, sampled=1.8)}),
            "the new head beside the one of --from: +25.0% greedy (2.50, before 2.00), "
            "-10.0% T=0.8 (1.80, before 2.00) tokens per step on the held-out prompts",
        ),
        (
            report(FROM, **{FROM: measured(2.0), HEAD: measured(1.5)}),
            "the new head is worse, so the one of --from is kept: -25.0% greedy (1.50, before "
            "2.00), -25.0% T=0.8 (1.50, before 2.00) tokens per step on the held-out prompts",
        ),
        (
            report(speedup=0.9, head=measured(2.0)),
            "speculation does not pay here with 8 requests at once: 0.90 times the tokens/s",
        ),
    ],
)
def test_what_a_reader_should_know(found: dict[str, Any], told: str | None) -> None:
    first, *others = verdict.remarks(found)
    assert first.endswith("token by token: 1 of 1 greedy, 0 of 1 T=0.8")
    assert len(others) == (told is not None)
    if told is not None:
        assert others[0].startswith(told)


@pytest.mark.parametrize(
    ("kept", "new", "told"), [(HEAD, 2.5, "the new head"), (FROM, 1.5, "the head of --from")]
)
def test_suffix_is_told_of_where_a_head_was_adapted(kept: str, new: float, told: str) -> None:
    found = report(kept, suffix=measured(3.0), **{FROM: measured(2.0), HEAD: measured(new)})
    *_, last = verdict.remarks(found)
    assert last.startswith(f"{told} does not pay beside suffix")
    assert last.endswith("serve with method suffix and num_speculative_tokens 15")


def test_suffix_drafts_as_far_as_it_can() -> None:
    settings = Settings(Path(), "eagle3", (), Path(), num_speculative_tokens=2)
    spec = CONTENDERS[SUFFIX].spec(settings)
    assert spec is not None
    assert spec["num_speculative_tokens"] == 15
    head = CONTENDERS[HEAD].spec(settings)
    assert head is not None
    assert head["num_speculative_tokens"] == 2


def test_what_could_not_be_measured_is_told() -> None:
    found = {**report(head=measured(2.0)), "left_out": {SUFFIX: "no library"}}
    assert next(iter(verdict.remarks(found))) == "suffix was not measured: no library"
