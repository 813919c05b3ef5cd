"""Each draft is picked from its own row and the draft before it, and its law is handed over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.methods.sampling import make_noise, make_sampling
from tests.speculation import carry, make_speculation
from vllm_ascend_spec.methods.dspark.markov import MarkovDrafts, keep_likeliest
from vllm_ascend_spec.methods.loops.base import DraftLoopMixin
from vllm_ascend_spec.methods.loops.sampling import DraftSampler

VOCAB, RANK, WIDTH, K = 7, 3, 5, 3
KNOWN = torch.tensor([1, 2, 4, 6])


class Head:
    """The part of vLLM's model that drafts are picked with; of all tokens or of some."""

    target_vocab_size = VOCAB
    confidence_calls = 0

    def __init__(self, tokens: torch.Tensor | None) -> None:
        torch.manual_seed(3)
        size = VOCAB if tokens is None else len(tokens)
        self.out, self.before = torch.randn(size, WIDTH), torch.randn(VOCAB, RANK)
        self.after = torch.randn(size, RANK)
        self.draft_id_to_target_id = None
        if tokens is not None:
            self.draft_id_to_target_id = tokens - torch.arange(size)

    def compute_draft_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden @ self.out.T

    def markov_embed(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.before[tokens]

    def markov_bias(self, embedded: torch.Tensor) -> torch.Tensor:
        return embedded @ self.after.T

    def compute_confidence(self, hidden: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        self.confidence_calls += 1
        return torch.cat([hidden, embedded], dim=-1).sum(-1).sigmoid()

    def map_draft_to_target(self, tokens: torch.Tensor) -> torch.Tensor:
        offsets = self.draft_id_to_target_id
        return tokens if offsets is None else tokens + offsets[tokens]


class Drafter(MarkovDrafts, DraftLoopMixin):
    """Both, in the order that the docstring asks for."""

    def __init__(self, tokens: torch.Tensor | None, last: torch.Tensor, count: int | None) -> None:
        self.model = Head(tokens)
        # A buffer may be longer than the batch.
        self.last_tokens = torch.cat([last, torch.zeros(2, dtype=last.dtype)])
        settings = SimpleNamespace(dspark_draft_topk=count) if count else SimpleNamespace()
        self.draft_model_config = SimpleNamespace(hf_config=settings)


def law(
    drafter: Drafter, hidden: torch.Tensor, before: int, count: int | None, temperature: float
) -> torch.Tensor:
    """Return the distribution of one draft over the target's tokens, computed plainly."""
    head: Any = drafter.model
    own = head.out @ hidden
    if count:
        own = torch.where(own >= own.sort(descending=True).values[count - 1], own, -torch.inf)
    own = own + head.after @ head.before[before]
    tokens = torch.arange(VOCAB) if head.draft_id_to_target_id is None else KNOWN
    found = torch.zeros(VOCAB)
    found[tokens] = (own / temperature).softmax(-1)
    return found


@pytest.mark.parametrize("count", [None, 2])
@pytest.mark.parametrize("tokens", [None, KNOWN], ids=["all tokens", "some tokens"])
def test_greedy_drafts_follow_each_other(tokens: torch.Tensor | None, count: int | None) -> None:
    last = torch.tensor([5, 0, 3], dtype=torch.int32)
    drafter = Drafter(tokens, last, count)
    hidden = torch.randn(3, K, WIDTH)
    found = drafter.pick_all(hidden, None)
    assert drafter._last_draft_probs is None
    for request, drafts in enumerate(found.tolist()):
        before = int(last[request])
        for place, draft in enumerate(drafts):
            probs = law(drafter, hidden[request, place], before, count, 1.0)
            assert draft == int(probs.argmax())
            before = draft


@pytest.mark.parametrize("count", [None, 2])
@pytest.mark.parametrize("tokens", [None, KNOWN], ids=["all tokens", "some tokens"])
def test_sampled_drafts_have_the_distribution_that_is_handed_over(
    tokens: torch.Tensor | None, count: int | None
) -> None:
    """Many requests of the same text: how often each pair of drafts comes."""
    samples, temperature = 40_000, 0.8
    drafter = Drafter(tokens, torch.full((samples,), 5), count)
    hidden = torch.randn(1, 2, WIDTH).expand(samples, 2, WIDTH)
    sampler = DraftSampler(make_sampling([temperature] * samples))
    found = drafter.pick_all(hidden, sampler)
    probs = drafter._last_draft_probs
    assert probs is not None
    first = law(drafter, hidden[0, 0], 5, count, temperature)
    pairs = torch.zeros(VOCAB, VOCAB)
    for before in range(VOCAB):
        then = law(drafter, hidden[0, 1], before, count, temperature)
        pairs[before] = first[before] * then
        of_these = probs[found[:, 0] == before]
        torch.testing.assert_close(of_these[:, 0], first.expand(len(of_these), VOCAB))
        torch.testing.assert_close(of_these[:, 1], then.expand(len(of_these), VOCAB))
    counted = torch.bincount(found[:, 0] * VOCAB + found[:, 1], minlength=VOCAB * VOCAB)
    shares = counted.view(VOCAB, VOCAB) / samples
    assert (shares[pairs == 0] == 0).all()
    spread = (pairs * (1 - pairs) / samples).sqrt()
    assert ((shares - pairs).abs() <= 4.5 * spread).all()
    # The second draft depends on the first, or this shows nothing.
    assert (pairs / first[:, None].clamp(min=1e-9)).std(0).max() > 0.05


@pytest.mark.parametrize("count", [None, 2])
@pytest.mark.parametrize("tokens", [None, KNOWN], ids=["all tokens", "some tokens"])
def test_drafts_with_a_seed_follow_each_other_with_the_verifiers_noise(
    tokens: torch.Tensor | None, count: int | None
) -> None:
    samples, temperature = 300, 0.8
    drafter = Drafter(tokens, torch.full((samples,), 5), count)
    hidden = torch.randn(1, K, WIDTH).expand(samples, K, WIDTH)
    params = make_sampling([temperature] * samples)
    noise = make_noise([*range(samples)], [3] * samples)
    found = drafter.pick_all(hidden, DraftSampler(params, noise))
    assert drafter._last_draft_probs is None
    for seed, drafts in enumerate(found.tolist()):
        before = 5
        for place, draft in enumerate(drafts):
            # Of the plain law, with the noise of the place.
            probs = law(drafter, hidden[0, place], before, count, temperature)
            sampler = DraftSampler(make_sampling([1.0]), make_noise([seed], [3 + place]))
            assert draft == int(sampler.draw(probs.log()[None])[0])
            before = draft
    assert len(set(map(tuple, found.tolist()))) > 3


def test_of_the_likeliest_the_values_stay() -> None:
    logits = torch.tensor([[[0.5, 2.0, -1.0, 1.0]]])
    found = keep_likeliest(logits, 2)
    assert found.tolist() == [[[-torch.inf, 2.0, -torch.inf, 1.0]]]


def test_a_confidence_knows_its_row_and_the_draft_before_it() -> None:
    last = torch.tensor([5, 0, 3])
    drafter: Any = Drafter(None, last, None)
    hidden = torch.randn(3, K, WIDTH)
    drafter.has_confidences = True
    drafts = drafter.pick_all(hidden, None)
    before = torch.cat([last[:, None], drafts[:, :-1]], dim=1)
    expected = (hidden.sum(-1) + drafter.model.before[before].sum(-1)).sigmoid()
    torch.testing.assert_close(drafter.take_confidences(), expected)
    # Those of one step are not taken for another's, which may make no drafts.
    assert drafter.take_confidences() is None


class Settings:
    """vLLM's configuration, as far as it decides whether confidences are used."""

    def __init__(self, length: str, *, is_ahead: bool, is_full: bool) -> None:
        self.speculative_config = carry(make_speculation("dspark", draft_length=length))
        self.scheduler_config = SimpleNamespace(async_scheduling=is_ahead)
        mode = SimpleNamespace(has_full_cudagraphs=lambda: is_full)
        self.compilation_config = SimpleNamespace(cudagraph_mode=mode)


@pytest.mark.parametrize("has_head", [True, False])
@pytest.mark.parametrize("is_full", [True, False])
@pytest.mark.parametrize("is_ahead", [True, False])
@pytest.mark.parametrize("length", ["adaptive", "auto", "fixed"])
def test_confidences_cost_nothing_where_nobody_uses_them(
    length: str, is_ahead: bool, is_full: bool, has_head: bool
) -> None:
    drafter: Any = Drafter(None, torch.tensor([5]), None)
    drafter.vllm_config = Settings(length, is_ahead=is_ahead, is_full=is_full)
    drafter.model.model = SimpleNamespace(confidence_head=object() if has_head else None)
    drafter.pick_all(torch.randn(1, K, WIDTH), None)
    is_used = length == "adaptive" and has_head and not (is_ahead or is_full)
    assert drafter.model.confidence_calls == is_used
    assert (drafter.take_confidences() is not None) == is_used
