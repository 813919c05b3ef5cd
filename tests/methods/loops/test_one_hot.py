"""Which drafts are certain: with a grammar in all loops, with a seed in vLLM's own loop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer

from vllm_ascend_spec.methods.loops.one_hot import (
    OneHotDraftsMixin,
    make_one_hot,
    requests_with_grammar,
    rows_of,
)
from vllm_ascend_spec.ops.row_noise import RowNoise

VOCAB = 6


def make_runner() -> Any:
    def with_grammar(grammar: Any) -> Any:
        return SimpleNamespace(sampling_params=SimpleNamespace(structured_outputs=grammar))

    requests = {"a": with_grammar("json"), "b": with_grammar(None), "c": with_grammar("regex")}
    requests["pooling"] = SimpleNamespace(sampling_params=None)
    batch = SimpleNamespace(req_ids=["c", "b", "pooling", "a"])
    return SimpleNamespace(requests=requests, input_batch=batch, noise_of_drafts=None)


def test_requests_with_structured_output_are_found() -> None:
    assert requests_with_grammar(make_runner()) == [0, 3]


class Stock:
    """The part of vLLM's proposer that the mixin builds on."""

    def __init__(self, draws: bool) -> None:
        self.runner = make_runner()
        self.draws = draws

    def _sample_from_logits(self, logits: torch.Tensor, sampling_metadata: Any) -> Any:
        laws = torch.full(logits.shape, 1 / VOCAB)
        return torch.zeros(len(logits), dtype=torch.int64), laws if self.draws else None


class Proposer(OneHotDraftsMixin, Stock):
    """Both, in the order that the docstring asks for."""


@pytest.mark.parametrize("each", [1, 3])
@pytest.mark.parametrize(("seeds", "certain"), [({}, {0, 3}), ({1: 5, 3: 6}, {0, 1, 3})])
def test_vllms_loop_does_not_draw_them_either(
    seeds: dict[int, int], certain: set[int], each: int
) -> None:
    """Nor those of requests with a seed, as it draws with other noise than the verifier."""
    logits = torch.randn(4 * each, VOCAB, generator=torch.Generator().manual_seed(1))
    own = {index: torch.Generator().manual_seed(seed) for index, seed in seeds.items()}
    before = {index: one.get_state() for index, one in own.items()}
    sampling = SimpleNamespace(generators=own)
    tokens, probs = Proposer(draws=True)._sample_from_logits(logits, sampling)
    assert all(torch.equal(before[index], one.get_state()) for index, one in own.items())
    bound = [row for row in range(4 * each) if row // each in certain]
    free = [row for row in range(4 * each) if row not in bound]
    assert tokens[bound].tolist() == logits[bound].argmax(-1).tolist()
    assert probs[bound].argmax(-1).tolist() == tokens[bound].tolist()
    assert (probs.sum(-1) - 1).abs().max() < 1e-6
    assert (probs[bound].amax(-1) == 1).all()
    assert (tokens[free] == 0).all()
    assert (probs[free] == 1 / VOCAB).all()


def test_vllms_loop_draws_none_where_every_request_was_given_a_seed() -> None:
    logits, proposer = torch.randn(4, VOCAB), Proposer(draws=True)
    seeds = torch.arange(4)
    proposer.runner.noise_of_drafts = RowNoise(seeds, seeds, None)
    tokens, _ = proposer._sample_from_logits(logits, SimpleNamespace(generators={}))
    assert tokens.tolist() == logits.argmax(-1).tolist()


@pytest.mark.parametrize("seeds", [{}, {1: torch.Generator()}])
def test_greedy_drafts_are_left_alone(seeds: dict[int, torch.Generator]) -> None:
    sampling = SimpleNamespace(generators=seeds)
    tokens, probs = Proposer(draws=False)._sample_from_logits(torch.randn(4, VOCAB), sampling)
    assert probs is None
    assert (tokens == 0).all()


def test_no_rows_change_nothing() -> None:
    tokens, probs = torch.arange(2), torch.full((2, VOCAB), 0.1)
    make_one_hot(rows_of([], tokens.device), tokens, probs, torch.randn(2, VOCAB))
    assert tokens.tolist() == [0, 1]
    assert (probs == 0.1).all()


def test_vllms_loop_asks_where_the_mixin_answers() -> None:
    assert "_sample_from_logits" in SpecDecodeBaseProposer._sample_draft_tokens.__code__.co_names
