"""The hybrid over a model that is a fake: who drafts, and what the verifier is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.methods.engine import VOCAB
from tests.methods.suffix.followed import GREEDY, SEEDED, Requests
from vllm_ascend_spec.methods.hybrid.drafter import HybridMixin
from vllm_ascend_spec.methods.hybrid.request_state import Estimators

PHRASE = [3, 4, 5, 6, 7, 8, 9, 10]
MODEL = [40, 41, 42]


class Model:
    """A drafter with a model: drafts the same three tokens for everybody."""

    uses_own_loop = True
    is_recorded = False
    keeps_cache_only = False
    all_have_seeds = False
    _enable_probabilistic_draft_probs = False

    def draft(self, step: Any) -> torch.Tensor:
        k = 0 if self.keeps_cache_only else step.k
        return self.propose(k, len(step.batch.req_ids))  # type: ignore[attr-defined]

    def forget(self) -> None:
        self.forgotten = True

    def has_all_steps_in_a_graph(self) -> bool:
        return self.is_recorded


class VllmModel(Model):
    def propose(self, num_speculative_tokens: int, num_reqs: int) -> torch.Tensor:
        self.asked = num_speculative_tokens
        self.probs = None
        draws = self._enable_probabilistic_draft_probs and not self.all_have_seeds
        if draws and num_speculative_tokens:
            self.probs = torch.full((num_reqs, num_speculative_tokens, VOCAB), 1 / VOCAB)
        return torch.tensor([MODEL[:num_speculative_tokens]] * num_reqs)

    def take_last_draft_probs(self) -> torch.Tensor | None:
        return self.probs


class Hybrid(HybridMixin, VllmModel):
    """What drafter.py joins."""


@pytest.fixture
def requests() -> Requests:
    return Requests()


@pytest.fixture
def hybrid(requests: Requests) -> Any:
    made: Any = Hybrid()
    made.suffix, made.forecasts = requests.drafter, Estimators()
    made.by_suffix = {}
    set_graphs(made, full=False)
    return made


def set_graphs(made: Any, *, full: bool) -> None:
    mode = SimpleNamespace(has_full_cudagraphs=lambda: full)
    made.vllm_config = SimpleNamespace(
        compilation_config=SimpleNamespace(cudagraph_mode=mode),
        model_config=SimpleNamespace(is_moe=True),
        parallel_config=SimpleNamespace(data_parallel_size=1),
    )


def start(requests: Requests, *req_ids: str, params: Any = GREEDY, times: int = 4) -> None:
    """Let requests come in that have read the phrase so many times, and its beginning again."""
    for req_id in req_ids:
        # Something else after each, so that no match is longer than the beginning.
        read = [token for i in range(times) for token in (*PHRASE, 11 + i)]
        requests.start(req_id, [*read, 3, 4], params)


def test_each_request_gets_the_drafts_that_promise_more(hybrid: Any, requests: Requests) -> None:
    start(requests, "a")
    requests.start("b", [20, 21])
    for in_batch in (True, False):  # as vllm-ascend and as vLLM call it
        step = requests.step(3, a=[5 + (not in_batch)], b=[22], in_batch=in_batch)
        assert hybrid.draft(step) == [[6, 7, 8] if in_batch else [7, 8, 9], MODEL]
        assert hybrid.asked == 3


def test_short_drafts_of_the_trees_lose(hybrid: Any, requests: Requests) -> None:
    start(requests, "a")
    assert hybrid.draft(requests.step(3, a=[3])) == [MODEL]  # of a match of one token


def test_where_all_go_by_the_trees_the_model_keeps_its_cache_only(
    hybrid: Any, requests: Requests
) -> None:
    start(requests, "a", "b", "c")
    step = requests.step(3, a=[5], b=[5], c=[])
    assert hybrid.draft(step) == [[6, 7, 8], [6, 7, 8], []]
    assert hybrid.asked == 0


@pytest.mark.parametrize("name", ["is_recorded", "uses_own_loop"])
def test_the_model_is_not_left_out_where_it_cannot_be(
    hybrid: Any, requests: Requests, name: str
) -> None:
    """All its steps are one graph, or its loop is not ours."""
    setattr(hybrid, name, not getattr(hybrid, name))
    start(requests, "a")
    assert hybrid.draft(requests.step(3, a=[5])) == [[6, 7, 8]]
    assert hybrid.asked == 3


def test_replicas_in_lock_step_run_all_draft_steps(hybrid: Any, requests: Requests) -> None:
    hybrid.vllm_config.parallel_config.data_parallel_size = 2
    start(requests, "a")
    assert hybrid.draft(requests.step(3, a=[5])) == [[6, 7, 8]]
    assert hybrid.asked == 3


def test_a_full_graph_of_the_target_gets_k_drafts_for_all(hybrid: Any, requests: Requests) -> None:
    set_graphs(hybrid, full=True)
    start(requests, "a", "b")
    assert hybrid.draft(requests.step(3, a=[5], b=[5, 6])) == [[6, 7, 8], [7, 8, 9]]
    start(requests, "c")
    hybrid.suffix.max_spec_factor = 0.7
    assert hybrid.draft(requests.step(3, c=[5])) == [MODEL]  # of the trees there are two
    set_graphs(hybrid, full=False)
    start(requests, "d")
    assert hybrid.draft(requests.step(3, d=[5])) == [[6, 7]]


def test_no_drafts_at_all_and_nothing_is_missed(hybrid: Any, requests: Requests) -> None:
    start(requests, "a")
    assert hybrid.draft(requests.step(0, a=[5])).shape == (1, 0)
    assert hybrid.by_suffix == {}
    assert hybrid.draft(requests.step(3, a=[6])) == [[7, 8, 9]]


def test_drafts_of_the_trees_are_certain_beside_drawn_ones(hybrid: Any, requests: Requests) -> None:
    hybrid._enable_probabilistic_draft_probs = True
    start(requests, "a")
    requests.start("b", [20, 21])
    hybrid.draft(requests.step(3, b=[22], a=[5]))
    for _ in range(2):  # the stock runner takes them, and ours again
        probs = hybrid.take_last_draft_probs()
        assert torch.equal(probs[0], torch.full((3, VOCAB), 1 / VOCAB))
        assert torch.equal(probs[1], torch.eye(VOCAB)[[6, 7, 8]])
    hybrid.draft(requests.step(3, a=[6]))
    assert hybrid.take_last_draft_probs() is None  # all are certain


def test_the_choice_does_not_depend_on_what_is_drawn(
    hybrid: Any, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made before the model is called: what it draws in this step cannot tell."""
    hybrid._enable_probabilistic_draft_probs = True
    start(requests, "a")
    chosen: list[Any] = []
    draft = VllmModel.draft

    def watched(self: Any, step: Any) -> torch.Tensor:
        chosen.append(dict(self.by_suffix))
        return draft(self, step)

    monkeypatch.setattr(Model, "draft", watched)
    hybrid.draft(requests.step(3, a=[5]))
    assert list(chosen[0]) == [0]
    assert chosen[0] == hybrid.by_suffix


def test_a_model_that_turns_out_better_takes_over(hybrid: Any, requests: Requests) -> None:
    """The trees are wrong time and again, the model is always right."""
    start(requests, "a", times=2)
    by = []
    for _ in range(5):
        drafts = hybrid.draft(requests.step(3, a=[3, 4, 5]))
        by.append("model" if drafts == [MODEL] else "trees")
        hybrid.draft(requests.step(3, a=[*MODEL, 30]))
    assert by[0] == "trees"
    assert by[-1] == "model"


@pytest.mark.parametrize("others", [GREEDY, SEEDED])
def test_requests_with_a_seed_share_what_was_learnt(
    hybrid: Any, requests: Requests, others: Any
) -> None:
    """Their text does not depend on who drafts."""
    start(requests, "a", params=others, times=2)
    for _ in range(5):
        hybrid.draft(requests.step(3, a=[3, 4, 5]))
        hybrid.draft(requests.step(3, a=[*MODEL, 30]))
    start(requests, "s", params=SEEDED, times=2)
    assert hybrid.draft(requests.step(3, s=[5])) == [MODEL]
    assert hybrid.suffix.followed["s"].notes.forecasts is hybrid.forecasts
    hybrid.forget()
    assert hybrid.forgotten
    start(requests, "t", params=SEEDED, times=2)
    assert hybrid.draft(requests.step(3, t=[5])) == [[6, 7, 8]]


def test_trees_drafts_stay_where_no_distribution_is_needed(hybrid: Any, requests: Requests) -> None:
    """If all requests that sample have a seed, the model's drafts come without."""
    hybrid._enable_probabilistic_draft_probs = True
    start(requests, "a", params=SEEDED)
    requests.start("b", [20, 21], SEEDED)
    hybrid.all_have_seeds = True
    assert hybrid.draft(requests.step(3, b=[22], a=[5])) == [MODEL, [6, 7, 8]]
    assert hybrid.take_last_draft_probs() is None


class TreeModel(VllmModel):
    """Its three drafts are a chain of two and a sibling."""

    learnt: Any = None

    def take_parents(self) -> list[list[int]]:
        return [[-1, 0, -1]] * 2

    def learn_tree(self, parents: Any, rows: Any) -> None:
        self.learnt = [list(own) for own in parents]


class HybridTree(HybridMixin, TreeModel):
    """The same with trees."""

    _shape = ((0,), (0, 0), (1,))
    _longest_chain = 2


def test_drafts_of_the_suffix_trees_are_a_chain_beside_trees_of_the_model(
    requests: Requests,
) -> None:
    made: Any = HybridTree()
    made.suffix, made.forecasts, made.by_suffix = requests.drafter, Estimators(), {}
    set_graphs(made, full=False)
    start(requests, "a")
    requests.start("b", [20, 21])
    assert made.draft(requests.step(3, a=[5], b=[22])) == [[6, 7, 8], MODEL]
    assert made.take_parents() == [[], [-1, 0, -1]]
    # The model's drafts count as far as they follow one another.
    drafts = requests.drafter.followed["b"].notes.last[1]
    assert list(drafts.tokens) == MODEL[:2]
    requests.runner.input_batch = SimpleNamespace(req_ids=["a", "b"])
    made.learn_tree([[-1, 0, 1], [-1, 0, -1]], [[0, 1], [0, 1]])
    assert made.learnt == [[], [-1, 0, -1]]
