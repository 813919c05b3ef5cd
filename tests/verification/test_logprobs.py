"""Logprobs of verified tokens against those of vLLM's own sampler without speculation."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
import torch
from vllm import SamplingParams
from vllm.v1.outputs import LogprobsTensors, SamplerOutput

from tests.verification.requests import (
    VOCAB,
    Request,
    make_verifier,
    noise_of,
    num_rows,
    rows_of,
    sampling_metadata,
    single_step,
    spec_metadata,
    tokens_of,
)

MODES = ("raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits")
TOP = 3
WIDTH = 4  # of the output: three drafts at most, and one more.

GREEDY: list[dict[str, Any]] = [
    {},
    {"repetition_penalty": 1.7},
    {"logit_bias": {3: 2.0}, "min_tokens": 3, "stop_token_ids": [2]},
    {"allowed_token_ids": [1, 2, 5, 7]},
]
MIXED: list[dict[str, Any]] = [
    {"temperature": 0.7, "top_k": 6, "min_p": 0.05},
    {"repetition_penalty": 1.7},
    {"temperature": 1.4, "top_p": 0.9, "frequency_penalty": 0.8},
    {"temperature": 0.9, "extra_args": {"flatten": 0.5}, "min_p": 0.3},
]
PLAIN: list[dict[str, Any]] = [{"temperature": 0.7}, {}, {"temperature": 1.2}, {"min_p": 0.0}]
CONSTRAINED = [{"temperature": 0.8, "top_p": 0.9, "min_p": 0.1, "logit_bias": {3: 2.0}}] * 4
# By index of the request.
SEEDS: list[dict[int, int]] = [{}, {0: 5}, {0: 5, 1: -3, 2: 2**63 - 1, 3: 0}]
BATCHES = {"greedy": GREEDY, "mixed": MIXED, "plain": PLAIN, "constrained": CONSTRAINED}


def make_batch(options: list[dict[str, Any]], seed: int) -> tuple[list[Request], torch.Tensor]:
    """Build requests whose drafts are the logits' favourites."""
    requests = [
        Request(SamplingParams(**{"temperature": 0.0, **o}), [1, 2, 3], [4, 5], [0] * count)
        for o, count in zip(options, (3, 0, 2, 3), strict=True)
    ]
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(num_rows(requests), VOCAB, generator=generator) * 4
    for request, rows in zip(requests, rows_of(requests, logits), strict=True):
        request.drafts = rows[: len(request.drafts)].argmax(-1).tolist()
    return requests, logits


def verify(
    requests: list[Request],
    logits: torch.Tensor,
    mode: str,
    seeds: Mapping[int, int] = MappingProxyType({}),
    **wanted: Any,
) -> SamplerOutput:
    metadata, verifier = sampling_metadata(requests, **wanted), make_verifier(mode)
    verifier.noise = noise_of(requests, seeds)
    return verifier(spec_metadata(requests), None, logits, metadata)


def full_row(request: Request, row: torch.Tensor, past: list[int], mode: str) -> torch.Tensor:
    """Return what vLLM's sampler would report for the whole vocabulary, [vocab_size]."""
    output = single_step(request, row, past, mode=mode, max_num_logprobs=-1)
    return output.logprobs_tensors.logprobs[0]


def check_cell(found: LogprobsTensors, cell: int, token: int, full: torch.Tensor) -> None:
    """Compare one cell: the token's own value and rank, then the best."""
    assert found.logprob_token_ids[cell, 0] == token
    torch.testing.assert_close(found.logprobs[cell, 0], full[token])
    assert found.selected_token_ranks[cell] == (full >= full[token]).sum()
    torch.testing.assert_close(found.logprobs[cell, 1:], full.topk(TOP).values)
    ids = found.logprob_token_ids[cell, 1:].long()
    torch.testing.assert_close(full[ids], found.logprobs[cell, 1:])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("seeds", SEEDS, ids=["no seed", "one seed", "seeds"])
def test_every_token_has_the_logprobs_of_vllms_sampler(
    seeds: dict[int, int], batch: str, mode: str
) -> None:
    num_accepted = 0
    for seed in range(4):
        requests, logits = make_batch(BATCHES[batch], seed)
        torch.manual_seed(seed)
        output = verify(requests, logits, mode, seeds, max_num_logprobs=TOP)
        found = output.logprobs_tensors
        assert found is not None
        assert found.logprobs.shape == (len(requests) * WIDTH, TOP + 1)
        said = tokens_of(output.sampled_token_ids)
        num_accepted += sum(len(tokens) - 1 for tokens in said)
        for index, rows in enumerate(rows_of(requests, logits)):
            for position, token in enumerate(said[index]):
                past = requests[index].drafts[:position]
                full = full_row(requests[index], rows[position], past, mode)
                check_cell(found, index * WIDTH + position, token, full)
    assert num_accepted > 3


def test_modes_differ() -> None:
    requests, logits = make_batch(CONSTRAINED, 0)
    values = []
    for mode in MODES:
        torch.manual_seed(0)
        found = verify(requests, logits, mode, max_num_logprobs=TOP).logprobs_tensors
        assert found is not None
        values.append(found.logprobs[0, 1].item())
    assert len(set(values)) == len(MODES)


@pytest.mark.parametrize("batch", ["greedy", "mixed"])
def test_no_logprobs_where_nobody_wants_them(batch: str) -> None:
    requests, logits = make_batch(BATCHES[batch], 0)
    assert verify(requests, logits, "raw_logprobs").logprobs_tensors is None


def test_zero_logprobs_are_those_of_the_tokens_alone() -> None:
    requests, logits = make_batch(GREEDY, 0)
    found = verify(requests, logits, "raw_logprobs", max_num_logprobs=0).logprobs_tensors
    assert found is not None
    assert found.logprobs.shape == (len(requests) * WIDTH, 1)
    assert found.logprobs[0, 0] == logits[0].log_softmax(-1)[found.logprob_token_ids[0, 0]]


@pytest.mark.parametrize("mode", MODES)
def test_logprobs_of_chosen_token_ids(mode: str) -> None:
    requests, logits = make_batch(GREEDY, 1)
    wanted = {0: [7, 1], 2: [5]}
    output = verify(requests, logits, mode, logprob_token_ids=wanted)
    found = output.logprobs_tensors
    assert found is not None
    for index, rows in enumerate(rows_of(requests, logits)):
        for position, token in enumerate(tokens_of(output.sampled_token_ids)[index]):
            cell = index * WIDTH + position
            past = requests[index].drafts[:position]
            full = full_row(requests[index], rows[position], past, mode)
            ids = [token, *wanted.get(index, [])]
            assert found.logprob_token_ids[cell, : len(ids)].tolist() == ids
            torch.testing.assert_close(found.logprobs[cell, : len(ids)], full[ids])
            assert (found.logprobs[cell, len(ids) :] == float("-inf")).all()


@pytest.mark.parametrize("seeds", SEEDS, ids=["no seed", "one seed", "seeds"])
def test_wanting_logprobs_does_not_change_the_tokens(seeds: dict[int, int]) -> None:
    for seed in range(5):
        requests, logits = make_batch(MIXED, seed)
        said = []
        for wanted in ({}, {"max_num_logprobs": TOP}):
            torch.manual_seed(seed)
            output = verify(requests, logits, "processed_logprobs", seeds, **wanted)
            said.append(output.sampled_token_ids)
        assert torch.equal(*said)
