"""K that changes from step to step changes no answer, however long steps take."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.e2e.drafts import watch
from tests.engines import assert_same, token_ids
from tests.zoo import EVERY, MOST_DRAFTS
from vllm_ascend_spec.control import kinds
from vllm_ascend_spec.control.goodput import PAYS, Choice
from vllm_ascend_spec.control.scheduler import AdaptiveScheduler

ADAPTIVE = {"ascend_spec": {"draft_length": "adaptive"}}
BY_DAY = ("eagle", "pard", "medusa", "ngram")
WRONG = {"method": "custom_class", "model": "tests.e2e.wrong.Wrong", "num_speculative_tokens": 3}


def scheduler_of(llm: Any) -> Any:
    """Return the scheduler of an engine in this process."""
    return llm.llm_engine.engine_core.engine_core.scheduler


@pytest.fixture(scope="module")
def expected(expect: Any, prompts: list[str]) -> list[list[int]]:
    return token_ids(expect(prompts))


@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=() if name in BY_DAY else pytest.mark.nightly) for name in EVERY],
)
def test_answers_are_those_of_no_speculation(
    method: str, make_engine: Any, generate: Any, prompts: list[str], expected: Any
) -> None:
    longest = min(3, MOST_DRAFTS.get(method, 3))
    spec = {**EVERY[method], "num_speculative_tokens": longest}
    llm = make_engine(spec, additional_config=ADAPTIVE)
    # vLLM schedules no steps ahead on a CPU, see tests/ascend/test_adaptive.py.
    assert isinstance(scheduler_of(llm), AdaptiveScheduler)
    with watch(llm) as seen:
        answers = token_ids(generate(llm, prompts[:24]))
    assert_same(answers, expected[:24])
    # It looks at both ends, at least, before it chooses.
    assert {k for _, k in scheduler_of(llm).chooser.costs.cells()} >= {0, longest}
    assert seen.acceptance.num_accepted_tokens > 0


def test_a_length_that_changes_with_every_step(
    make_engine: Any,
    generate: Any,
    prompts: list[str],
    expected: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Harder than any chooser: 0 after 3, 3 after 0, in the midst of every request."""
    llm = make_engine(EVERY["eagle"], additional_config=ADAPTIVE)
    lengths = [3, 0, 1, 0, 0, 2, 3, 1]
    turn = iter(lengths * 4000)
    monkeypatch.setattr(
        scheduler_of(llm).chooser, "choose", lambda requests: Choice(next(turn), PAYS)
    )
    with watch(llm) as seen:
        answers = token_ids(generate(llm, prompts[:24]))
    assert_same(answers, expected[:24])
    assert {num for step in seen.steps for num in step.drafts} == {1, 2, 3}
    # What was drafted after a pause is accepted: the draft's cache stayed in step meanwhile.
    assert seen.acceptance.num_accepted_tokens > 0.6 * seen.acceptance.num_draft_tokens


def test_drafts_that_are_never_accepted_are_given_up(
    make_engine: Any, generate: Any, prompts: list[str], expected: Any
) -> None:
    llm = make_engine(WRONG, additional_config=ADAPTIVE)
    with watch(llm) as seen:
        answers = token_ids(generate(llm, prompts[:32]))
    assert_same(answers, expected[:32])
    chooser = scheduler_of(llm).chooser
    assert chooser.acceptance.rates()[0] < 0.1
    drafted = [bool(step.drafts) for step in seen.steps]
    assert sum(drafted[-100:]) < 50


def test_some_lengths_are_left_out(make_engine: Any, generate: Any, prompts: list[str]) -> None:
    options = {"ascend_spec": {"draft_length": "adaptive", "draft_lengths": [1, 3]}}
    llm = make_engine(EVERY["medusa"], additional_config=options)
    with watch(llm) as seen:
        generate(llm, prompts[:8])
    assert {num for step in seen.steps for num in step.drafts} <= {1, 3}


def test_requests_of_which_fewer_drafts_are_verified(
    make_engine: Any,
    generate: Any,
    prompts: list[str],
    expected: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Harder than any history: another limit for each request in each step."""
    llm = make_engine(EVERY["eagle"], additional_config=ADAPTIVE)
    scheduler = scheduler_of(llm)
    chooser, each = scheduler.kinds[False].chooser, scheduler.kinds[False].each
    numbers = itertools.count()
    monkeypatch.setattr(kinds, "HOLD", 1)
    monkeypatch.setattr(chooser, "choose", lambda requests: Choice(3, PAYS))
    monkeypatch.setattr(chooser, "choice", Choice(3, PAYS))
    monkeypatch.setattr(chooser.costs, "row_seconds", lambda: 1e-3)
    monkeypatch.setattr(
        each, "limits", lambda price: {name: next(numbers) * 7 % 5 for name in each._running}
    )
    with watch(llm) as seen:
        answers = token_ids(generate(llm, prompts[:24]))
    assert_same(answers, expected[:24])
    assert any(len(set(step.drafts)) > 2 for step in seen.steps)
    assert seen.acceptance.num_accepted_tokens > 0.6 * seen.acceptance.num_draft_tokens
