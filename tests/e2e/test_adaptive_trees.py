"""K chosen among chains and trees changes no answer, and only what is asked for is drafted."""

from __future__ import annotations

from typing import Any

import pytest
from vllm import SamplingParams

from tests.e2e import sampled
from tests.e2e.drafts import watch
from tests.e2e.staggered import run_staggered
from tests.e2e.test_adaptive import drafter_of, scheduler_of
from tests.e2e.test_trees import TREES, spec_of
from tests.engines import assert_same, token_ids
from tests.marks import unless
from tests.zoo import EVERY, target_of
from vllm_ascend_spec.control.adaptive_k import PAYS, KChoice
from vllm_ascend_spec.upstream import limits
from vllm_ascend_spec.worker.cpu_tree_attention import TreeAttentionImpl

pytestmark = unless(limits.FIXED_K or limits.NO_TREES)

BY_DAY = ("eagle3", "ngram")
METHODS = [
    pytest.param(name, marks=() if name in BY_DAY else pytest.mark.nightly) for name in TREES
]
# By method, what is chosen in turn: chains, parts of the tree, all of it, and nothing.
CHOSEN = {
    "eagle3": [15, 2, 0, 10, 15, 5, 0, 0, 10, 3, 15, 1],
    "ngram": [12, 3, 0, 12, 6, 1, 12],
}


def choose_in_turn(llm: Any, chosen: list[int], patch: pytest.MonkeyPatch) -> list[int]:
    """Choose K in turn, whatever pays; return what was chosen, as it is."""
    done: list[int] = []

    def choose(requests: int) -> KChoice:
        done.append(chosen[len(done) % len(chosen)])
        return KChoice(done[-1], PAYS)

    for kind in scheduler_of(llm).classes.values():
        patch.setattr(kind.chooser, "choose", choose)
    return done


def lengths_of(llm: Any) -> list[int]:
    return list(scheduler_of(llm).k_values)


@pytest.fixture(scope="module")
def make_adaptive(make_engine: Any) -> Any:
    """Return ``make(method, **arguments) -> LLM``, which chooses K among chains and trees."""

    def make(method: str, **arguments: Any) -> Any:
        section = {**TREES[method][0], "draft_length": "adaptive"}
        options = {"ascend_spec": section}
        return make_engine(spec_of(method), additional_config=options, **arguments)

    return make


@pytest.mark.core
@pytest.mark.parametrize("method", METHODS)
def test_greedy_beside_neighbours_that_come_and_go(
    method: str, make_adaptive: Any, expect: Any, prompts: list[str], monkeypatch: Any
) -> None:
    """Batches of one to eight; another choice in each step, in the midst of every request."""
    llm = make_adaptive(method)
    chosen = CHOSEN.get(method) or [lengths_of(llm)[n] for n in (-1, 1, 0, -2, -1, 2)]
    done = choose_in_turn(llm, chosen, monkeypatch)

    def greedy(length: int, **more: Any) -> SamplingParams:
        return SamplingParams(temperature=0, max_tokens=length, ignore_eos=True, **more)

    asked = [(0, prompts[0], greedy(48)), (0, prompts[1], greedy(7))]
    asked += [(6, prompts[2 + n], greedy(12 + 4 * n)) for n in range(6)]
    asked += [(8, prompts[8], greedy(40, extra_args={"speculation": 4}))]
    asked += [(60, prompts[9], greedy(48))]
    with watch(llm) as seen:
        answers = run_staggered(llm, asked)
    expected = token_ids(
        expect([text for _, text, _ in asked], {"model": target_of(EVERY[method])})
    )
    assert_same(answers, [e[: len(a)] for e, a in zip(expected, answers, strict=True)])
    assert [len(answer) for answer in answers] == [p.max_tokens for _, _, p in asked]
    assert set(done) == set(chosen)
    assert max(max(step.drafts, default=0) for step in seen.steps) == TREES[method][1]
    assert {1, 8} <= {step.num_requests for step in seen.steps}


@pytest.mark.parametrize("method", METHODS)
def test_every_kind_of_request_with_a_seed(
    method: str,
    make_adaptive: Any,
    plain: Any,
    prompts: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    llm = make_adaptive(method)
    chosen = CHOSEN.get(method) or [lengths_of(llm)[n] for n in (-1, 1, 0, -2, -1, 2)]
    choose_in_turn(llm, chosen, monkeypatch)
    assert_same(sampled.ask(llm, prompts[:12]), sampled.ask(plain, prompts[:12]))


def test_a_chain_takes_as_many_passes_as_it_has_drafts_and_no_tree(
    make_adaptive: Any, generate: Any, prompts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No mask and no rounds, however large the tree is that another step may choose."""
    llm = make_adaptive("eagle3")
    steps = drafter_of(llm).steps
    passes: list[int] = []
    model = steps.direct if hasattr(steps, "direct") else drafter_of(llm).model
    forward, whole = model.forward, TreeAttentionImpl.forward
    along: list[bool] = []

    def noted(*args: Any, **kwargs: Any) -> Any:
        passes.append(1)
        return forward(*args, **kwargs)

    def attended(
        self: Any, layer: Any, q: Any, k: Any, v: Any, cache: Any, about: Any, *o: Any, **more: Any
    ) -> Any:
        along.append(getattr(about, "ascend_spec_paths", None) is not None)
        return whole(self, layer, q, k, v, cache, about, *o, **more)

    monkeypatch.setattr(model, "forward", noted)
    monkeypatch.setattr(TreeAttentionImpl, "forward", attended)
    counted = {}
    for k in (3, 5, 10, 15):
        choose_in_turn(llm, [k], monkeypatch)
        generate(llm, prompts[:1], batch=1, max_tokens=4)  # of another K before
        passes.clear()
        along.clear()
        with watch(llm) as seen:
            generate(llm, prompts[:1], batch=1, max_tokens=32)
        counted[k] = len(passes) / len(seen.steps), any(along)
    assert counted == {3: (3, False), 5: (5, False), 10: (5, True), 15: (5, True)}


def test_the_choice_is_measured_before_the_first_request_and_kept_apart(
    make_adaptive: Any, expect: Any, generate: Any, prompts: list[str]
) -> None:
    """Steps of dummy requests are timed for each choice; a tree's paths are not a chain's."""
    llm = make_adaptive("eagle3")
    scheduler = scheduler_of(llm)
    assert lengths_of(llm) == [0, 1, 2, 3, 5, 10, 15]
    timed = {k for n, k in scheduler.classes[False].chooser.costs.cells() if n == 1}
    assert timed == set(lengths_of(llm))
    assert_same(token_ids(generate(llm, prompts[:24])), token_ids(expect(prompts[:24])))
    kind = scheduler.classes[False]
    assert sum(mean.count for mean in kind.trees._means.values()) > 0
    assert kind.chooser.acceptance.longest == 15
    assert not any(kind.chooser.acceptance._verified[5:])
