"""K that changes from step to step changes no answer, however long steps take."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from vllm import SamplingParams

from tests.e2e.drafts import watch
from tests.e2e.held import holders_of
from tests.engines import assert_same, token_ids
from tests.marks import unless
from tests.zoo import EVERY, MOST_DRAFTS
from vllm_ascend_spec.config.schema import SpecOptions
from vllm_ascend_spec.control import batch_class
from vllm_ascend_spec.control.adaptive_k import PAYS, KChoice
from vllm_ascend_spec.control.adaptive_scheduler import AdaptiveScheduler
from vllm_ascend_spec.control.step_timer import TimedStep
from vllm_ascend_spec.upstream import limits

pytestmark = unless(limits.FIXED_K)

ADAPTIVE = {"ascend_spec": {"draft_length": "adaptive"}}
AUTO = {"ascend_spec": {"draft_length": "auto"}}
BY_DAY = ("eagle", "pard", "medusa", "ngram")
FROM_TEXT = ("ngram", "suffix", "custom_class")
WRONG = {"method": "custom_class", "model": "tests.e2e.wrong.Wrong", "num_speculative_tokens": 3}


def scheduler_of(llm: Any) -> Any:
    """Return the scheduler of an engine in this process."""
    return llm.llm_engine.engine_core.engine_core.scheduler


def drafter_of(llm: Any) -> Any:
    """Return the drafter of an engine in this process."""
    return llm.llm_engine.model_executor.driver_worker.worker.model_runner.drafter


@pytest.fixture(scope="module")
def expected(expect: Any, prompts: list[str]) -> list[list[int]]:
    return token_ids(expect(prompts))


def test_a_pass_of_masks_is_as_wide_as_the_steps_k(
    make_engine: Any, generate: Any, prompts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step with fewer drafts than the most has as few masks."""
    spec = {**EVERY["dflash"], "num_speculative_tokens_per_batch_size": [[1, 8, 1]]}
    llm = make_engine(spec)
    drafter = drafter_of(llm)
    forward, widths = drafter.steps.forward, []

    def noted(first: Any) -> Any:
        widths.append((first.rows.numel(), first.token_ids.numel()))
        return forward(first)

    monkeypatch.setattr(drafter.steps, "forward", noted)
    generate(llm, prompts[:4], batch=1, max_tokens=8)
    # One request: its last token and a mask, of which the mask yields the draft.
    assert set(widths) == {(1, 2)}


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
    scheduler = scheduler_of(llm)
    assert isinstance(scheduler, AdaptiveScheduler)
    # Steps were timed before the first request, but not where drafts come from the text.
    timed = {k for n, k in scheduler.chooser.costs.cells() if n == 1}
    assert timed == (
        set() if method in ("ngram", "suffix", "custom_class") else {*range(longest + 1)}
    )
    assert scheduler.get_num_unfinished_requests() == 0
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
        scheduler_of(llm).chooser, "choose", lambda requests: KChoice(next(turn), PAYS)
    )
    with watch(llm) as seen:
        answers = token_ids(generate(llm, prompts[:24]))
    assert_same(answers, expected[:24])
    assert {num for step in seen.steps for num in step.drafts} == {1, 2, 3}
    # What was drafted after a pause is accepted: the draft's cache stayed in step meanwhile.
    assert seen.acceptance.num_accepted_tokens > 0.6 * seen.acceptance.num_draft_tokens


def test_k_or_none_is_the_default() -> None:
    assert SpecOptions().draft_length == "auto"


@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=() if name in BY_DAY else pytest.mark.nightly) for name in EVERY],
)
def test_answers_with_k_or_none_are_those_of_no_speculation(
    method: str, make_engine: Any, generate: Any, prompts: list[str], expected: Any
) -> None:
    longest = min(3, MOST_DRAFTS.get(method, 3))
    spec = {**EVERY[method], "num_speculative_tokens": longest}
    llm = make_engine(spec, additional_config=AUTO)
    scheduler = scheduler_of(llm)
    assert isinstance(scheduler, AdaptiveScheduler)
    # Nothing was timed before the first request.
    assert not scheduler.chooser.costs.cells()
    with watch(llm) as seen:
        answers = token_ids(generate(llm, prompts[:24]))
    assert_same(answers, expected[:24])
    assert {k for _, k in scheduler.chooser.costs.cells()} == {0, longest}
    if method == "eagle":
        assert {num for step in seen.steps for num in step.drafts} == {3}
        # What was drafted after a pause is accepted: the draft's cache stayed in step meanwhile.
        assert seen.acceptance.num_accepted_tokens > 0.6 * seen.acceptance.num_draft_tokens
    assert seen.acceptance.num_accepted_tokens > 0


@pytest.mark.parametrize("options", [ADAPTIVE, AUTO], ids=["adaptive", "auto"])
def test_drafts_that_are_never_accepted_are_given_up(
    make_engine: Any,
    generate: Any,
    prompts: list[str],
    expected: Any,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
) -> None:
    llm = make_engine(WRONG, additional_config=options)
    kind = scheduler_of(llm).classes[False]
    stock, seconds = kind.ended, [0.0]

    def ended(step: TimedStep, now: float, running: Any) -> None:
        """Let a step take as long as its drafts say, not as long as a busy machine needs."""
        seconds[0] += 1e-3 * (1 + 0.2 * step.k)
        stock(step, seconds[0], running)

    monkeypatch.setattr(kind, "ended", ended)
    with watch(llm) as seen:
        answers = token_ids(generate(llm, prompts[:32]))
    assert_same(answers, expected[:32])
    chooser = scheduler_of(llm).chooser
    assert chooser.acceptance.rates()[0] < 0.1
    drafted = [bool(step.drafts) for step in seen.steps]
    assert sum(drafted[-100:]) < 50


def test_some_lengths_are_left_out(
    make_engine: Any, generate: Any, prompts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"ascend_spec": {"draft_length": "adaptive", "draft_lengths": [1, 3]}}
    llm = make_engine(EVERY["medusa"], additional_config=options)
    kind = scheduler_of(llm).classes[False]
    stock, chosen = kind.choose, []
    monkeypatch.setattr(kind, "choose", lambda n: chosen.append(stock(n)) or chosen[-1])
    with watch(llm) as seen:
        generate(llm, prompts[:8])
    assert {choice.k for choice in chosen} <= {1, 3}
    # Of a request fewer may be verified.
    assert {num for step in seen.steps for num in step.drafts} <= {1, 2, 3}


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
    chooser, each = scheduler.classes[False].chooser, scheduler.classes[False].per_request
    numbers = itertools.count()
    monkeypatch.setattr(batch_class, "HOLD_STEPS", 1)
    monkeypatch.setattr(chooser, "choose", lambda requests: KChoice(3, PAYS))
    monkeypatch.setattr(chooser, "choice", KChoice(3, PAYS))
    monkeypatch.setattr(chooser.costs, "row_seconds", lambda requests: 1e-3)
    monkeypatch.setattr(
        each,
        "limits",
        lambda price, drafts: {name: next(numbers) * 7 % 5 for name in each._running},
    )
    with watch(llm) as seen:
        answers = token_ids(generate(llm, prompts[:24]))
    assert_same(answers, expected[:24])
    assert any(len(set(step.drafts)) > 2 for step in seen.steps)
    assert seen.acceptance.num_accepted_tokens > 0.6 * seen.acceptance.num_draft_tokens


def test_drafts_that_a_head_has_no_confidence_in_are_not_verified(
    make_engine: Any,
    generate: Any,
    prompts: list[str],
    expected: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With rows that cost a fifth of a token; and the same without the confidences."""
    spec = {**EVERY["dspark"], "num_speculative_tokens": 7}
    llm = make_engine(spec, additional_config=ADAPTIVE)
    kind, drafter = scheduler_of(llm).classes[False], drafter_of(llm)
    monkeypatch.setattr(kind.chooser, "choose", lambda requests: KChoice(7, PAYS))
    monkeypatch.setattr(kind.chooser, "choice", KChoice(7, PAYS))
    monkeypatch.setattr(kind.chooser.costs, "row_seconds", lambda requests: 0.2)
    monkeypatch.setattr(kind.chooser, "goodput", lambda requests, k: 1.0)
    rows, tokens = {}, {}
    for has_confidences in (False, True):
        drafter.has_confidences = has_confidences
        with watch(llm) as seen:
            answers = token_ids(generate(llm, prompts[:24]))
        assert_same(answers, expected[:24])
        assert kind.confidence.pays(7) == has_confidences
        rows[has_confidences] = seen.acceptance.num_draft_tokens
        tokens[has_confidences] = seen.acceptance.num_accepted_tokens
    assert any(len(set(step.drafts)) > 2 for step in seen.steps)
    assert rows[True] < 0.9 * rows[False]
    assert tokens[True] > 0.9 * tokens[False]


def test_a_request_that_is_known_but_for_a_token_is_as_wide_as_the_others(
    make_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stock pads it where K is fixed only, and the batch loses its graph (vllm-ascend #16637)."""
    # EAGLE heads read states of the target, so vLLM lets them read the last block again.
    llm = make_engine(EVERY["medusa"], additional_config=ADAPTIVE, enable_prefix_caching=True)
    scheduler, core = scheduler_of(llm), llm.llm_engine
    block = core.vllm_config.cache_config.block_size
    prompt = [7 + place % 1000 for place in range(block + 1)]
    lengths = itertools.cycle([3, 1, 2])
    monkeypatch.setattr(scheduler.chooser, "choose", lambda requests: KChoice(next(lengths), PAYS))
    stock, seen = scheduler.schedule, []
    monkeypatch.setattr(
        scheduler, "schedule", lambda *a, **k: seen.append(stock(*a, **k)) or seen[-1]
    )
    params = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
    answers: dict[str, list[int]] = {}

    def step() -> None:
        for output in core.step():
            if output.finished:
                answers[output.request_id] = list(output.outputs[0].token_ids)

    core.add_request("first", {"prompt_token_ids": prompt}, params)
    for number in range(3):
        for _ in range(3 + number):
            step()
        # Its prompt is in the cache, but for the last token.
        core.add_request(f"again {number}", {"prompt_token_ids": prompt}, params)
    while core.has_unfinished_requests():
        step()
    assert len({tuple(tokens) for tokens in answers.values()}) == 1
    news = [out for out in seen if any("again" in new.req_id for new in out.scheduled_new_reqs)]
    assert len(news) == 3
    for out in news:
        widths = set(out.num_scheduled_tokens.values())
        assert len(widths) == 1, out.num_scheduled_tokens
        assert widths.pop() > 1


def test_nothing_is_kept_of_requests_that_have_ended(
    make_engine: Any, generate: Any, prompts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by ids in our dictionaries nor by the parts of vLLM that we extend."""
    llm = make_engine(EVERY["eagle"], additional_config=ADAPTIVE)
    scheduler = scheduler_of(llm)
    ids: set[str] = set()
    stock = scheduler.add_request

    def add_request(request: Any) -> None:
        ids.add(request.request_id)
        stock(request)

    with monkeypatch.context() as patch:
        patch.setattr(scheduler, "add_request", add_request)
        generate(llm, prompts[:8], extra_args={"speculation": 1})
        generate(llm, prompts[:8], temperature=1.0, seed=5)
        generate(llm, prompts[:8])
    assert len(ids) == 24
    generate(llm, prompts[:1], extra_args={"speculation": 2})
    assert holders_of(ids) == []
