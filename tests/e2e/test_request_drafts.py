"""A request's own limit on its drafts changes no answer, and holds."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from vllm import SamplingParams
from vllm.exceptions import VLLMValidationError

from tests.e2e.drafts import watch
from tests.engines import MAX_TOKENS, assert_same, token_ids
from tests.zoo import EVERY, KINDS
from vllm_ascend_spec.control.scheduler import SpecScheduler

STOCK = "vllm.v1.core.sched.scheduler.Scheduler"


@pytest.fixture(scope="module")
def expected(expect: Any, prompts: list[str]) -> list[list[int]]:
    return token_ids(expect(prompts[:8]))


def params(value: Any) -> SamplingParams:
    extra_args = None if value is None else {"speculation": value}
    return SamplingParams(
        temperature=0, max_tokens=MAX_TOKENS, ignore_eos=True, extra_args=extra_args
    )


@pytest.mark.parametrize("method", [*KINDS, "hybrid"])
def test_requests_beside_each_other_have_as_many_as_they_want(
    method: str, make_engine: Any, prompts: list[str], expected: list[list[int]]
) -> None:
    llm = make_engine(EVERY[method])
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    assert isinstance(scheduler, SpecScheduler)
    schedule, seen = scheduler.schedule, defaultdict(int)

    def watched(*args: Any, **kwargs: Any) -> Any:
        output = schedule(*args, **kwargs)
        for req_id, tokens in output.scheduled_spec_decode_tokens.items():
            # vLLM puts something random behind a request's id.
            number = req_id.partition("-")[0]
            seen[number] = max(seen[number], len(tokens))
        return output

    wanted = [None, "off", 1, 0, None, "off", 2, None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler, "schedule", watched)
        outputs = llm.generate(prompts[:8], [params(value) for value in wanted], use_tqdm=False)
    assert_same(token_ids([output.outputs[0] for output in outputs]), expected)
    most = [seen[output.request_id] for output in outputs]
    limits = {None: EVERY[method]["num_speculative_tokens"], "off": 0}
    for value, found in zip(wanted, most, strict=True):
        assert found <= limits.get(value, value)
    assert [bool(found) for found in most] == [value not in ("off", 0) for value in wanted]


def test_with_all_off_nothing_is_verified(
    make_engine: Any, generate: Any, prompts: list[str], expected: list[list[int]]
) -> None:
    llm = make_engine(EVERY["eagle"])
    with watch(llm) as seen:
        answers = generate(llm, prompts[:8], extra_args={"speculation": "off"})
    assert_same(token_ids(answers), expected)
    assert not any(step.drafts for step in seen.steps)
    # The draft's cache is in step, so the next request is drafted for as ever.
    with watch(llm) as seen:
        generate(llm, prompts[:8])
    assert seen.acceptance.tokens_per_step > 1.5


@pytest.mark.parametrize(
    ("spec", "arguments", "value", "problem"),
    [
        (EVERY["ngram"], {}, 9, "valid: 'off'"),
        (None, {}, 1, "this engine does not speculate"),
        (EVERY["ngram"], {"scheduler_cls": STOCK}, "off", f"with the scheduler '{STOCK}'"),
    ],
)
def test_what_cannot_be_is_refused(
    spec: Any, arguments: Any, value: Any, problem: str, make_engine: Any, prompts: list[str]
) -> None:
    llm = make_engine(spec, **arguments)
    with pytest.raises(VLLMValidationError, match=problem):
        llm.generate(prompts[:1], params(value), use_tqdm=False)
    # The engine goes on.
    (output,) = llm.generate(prompts[:1], params(None), use_tqdm=False)
    assert len(output.outputs[0].token_ids) == MAX_TOKENS


def test_steps_are_counted_by_length(make_engine: Any, generate: Any, prompts: list[str]) -> None:
    def counted() -> dict[tuple[str, str], float]:
        name = "vllm:spec_decode_draft_length_steps"
        found = (metric for metric in llm.get_metrics() if metric.name == name)
        return {(m.labels["k"], m.labels["reason"]): m.value for m in found}

    schedule = [[1, 4, 2], [5, 8, 0]]
    spec = EVERY["ngram"]
    longest = str(spec["num_speculative_tokens"])
    llm = make_engine(spec)
    before = counted()
    generate(llm, prompts[:8])
    after = counted()
    assert after[longest, "fixed"] > before.get((longest, "fixed"), 0) + 20
    llm = make_engine({**spec, "num_speculative_tokens_per_batch_size": schedule})
    generate(llm, prompts[:8])
    generate(llm, prompts[:1])
    assert {("2", "scheduled"), ("0", "scheduled")} <= set(counted())
