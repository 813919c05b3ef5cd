"""Steps without drafts in which a request has a seed go through the verifier."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch
from vllm import SamplingParams
from vllm.v1.sample.metadata import SamplingMetadata

from tests.verification.requests import (
    VOCAB,
    Request,
    budget_holder,
    make_verifier,
    noise_of,
    sampling_metadata,
    single_step,
    spec_metadata,
    verify_draftless,
)
from vllm_ascend_spec.ops.row_noise import RowNoise
from vllm_ascend_spec.verification.no_draft_step import no_draft_metadata

GREEDY: list[dict[str, Any]] = [
    {},
    {"repetition_penalty": 1.7, "presence_penalty": 1.0},
    {"logit_bias": {3: 4.0}, "min_tokens": 3, "stop_token_ids": [2]},
    {"allowed_token_ids": [1, 2, 5, 7]},
    {"extra_args": {"repeat_penalty": 2.0, "follow": 3.0}},
]
SAMPLED: list[dict[str, Any]] = [
    {"temperature": 0.7, "top_k": 6, "min_p": 0.05},
    {"temperature": 1.4, "top_p": 0.9, "frequency_penalty": 0.8},
    {"temperature": 0.9, "extra_args": {"flatten": 0.5}, "min_p": 0.3},
]


def make_requests(*options: dict[str, Any]) -> list[Request]:
    return [
        Request(SamplingParams(**{"temperature": 0.0, **o}), [1, 2, 3, 1], [4, index])
        for index, o in enumerate(options)
    ]


def make_logits(requests: list[Request], seed: int) -> torch.Tensor:
    return torch.randn(len(requests), VOCAB, generator=torch.Generator().manual_seed(seed)) * 2


def all_seeded(requests: list[Request], seed: int = 0, later: int = 0) -> RowNoise:
    """Return the noise of ``requests``, each of which has a seed."""
    noise = noise_of(requests, {index: seed + index for index in range(len(requests))}, later)
    assert noise is not None
    return noise


@pytest.mark.parametrize("options", [[{}, {"logit_bias": {3: 1.0}}], [{}, *SAMPLED]])
def test_steps_without_seeds_are_left_to_vllms_sampler(options: list[dict[str, Any]]) -> None:
    requests = make_requests(*options)
    metadata, logits = sampling_metadata(requests), make_logits(requests, 0)
    assert no_draft_metadata(metadata, len(requests), logits, has_seeds=False) is None


@pytest.mark.parametrize("options", [SAMPLED[:1], [{}, *SAMPLED], [SAMPLED[0], {}]])
def test_metadata_is_that_of_requests_without_drafts(options: list[dict[str, Any]]) -> None:
    requests = make_requests(*options)
    # As many rows as a graph has, of which only the first are requests.
    logits = make_logits([*requests, *requests], 0)
    found = no_draft_metadata(sampling_metadata(requests), len(requests), logits, has_seeds=True)
    assert found is not None
    expected = spec_metadata(requests)
    for name in (field.name for field in fields(expected)):
        ours, theirs = getattr(found, name), getattr(expected, name)
        if isinstance(theirs, torch.Tensor):
            assert ours.dtype == theirs.dtype, name
            assert ours.tolist() == theirs.tolist(), name
        else:
            assert ours == theirs, name
    assert found.num_draft_tokens == [0] * len(requests)
    assert found.max_spec_len == 0
    assert found.logits_indices.tolist() == [*range(len(requests))]


def test_metadata_lies_where_the_logits_lie() -> None:
    requests = make_requests(*SAMPLED)
    logits = make_logits(requests, 0).to("meta")
    found = no_draft_metadata(sampling_metadata(requests), len(requests), logits, has_seeds=True)
    assert found is not None
    tensors = [value for value in vars(found).values() if isinstance(value, torch.Tensor)]
    assert len(tensors) == 6
    assert all(tensor.is_meta for tensor in tensors)


def test_one_seed_is_enough_and_the_others_are_verified_beside_it() -> None:
    requests = make_requests(*SAMPLED, {})
    output = verify_draftless(requests, make_logits(requests, 0), noise_of(requests, {1: 0}))
    assert output.sampled_token_ids.shape == (4, 1)


@pytest.mark.parametrize("seed", range(6))
def test_every_request_gets_one_token_and_greedy_ones_that_of_vllms_sampler(seed: int) -> None:
    requests = make_requests(*GREEDY, *SAMPLED)
    requests[0].bad_words = [[4, 0], [7]]
    logits = make_logits(requests, seed)
    before = logits.clone()
    output = verify_draftless(requests, logits, all_seeded(requests, seed))
    tokens = output.sampled_token_ids
    assert tokens.shape == (len(requests), 1)
    assert tokens.dtype == torch.int32
    assert ((tokens >= 0) & (tokens < VOCAB)).all()
    assert output.logprobs_tensors is None
    assert torch.equal(logits, before)
    for index in range(len(GREEDY)):
        alone = single_step(requests[index], logits[index], [])
        assert tokens[index].tolist() == alone.sampled_token_ids[0].tolist()


@pytest.mark.parametrize("options", SAMPLED)
def test_seeded_request_repeats_and_says_only_what_vllms_sampler_could(
    options: dict[str, Any],
) -> None:
    requests = make_requests({}, options)
    logits = make_logits(requests, 3)
    processed = single_step(
        requests[1], logits[1], [], mode="processed_logprobs", max_num_logprobs=-1
    )
    probabilities = processed.logprobs_tensors.logprobs[0].exp()
    num_draws = 1500
    counts = torch.zeros(VOCAB)
    for later in range(num_draws):
        noise = all_seeded(requests, later=later)
        counts[verify_draftless(requests, logits, noise).sampled_token_ids[1, 0]] += 1
    possible = probabilities > 0
    assert counts[~possible].sum() == 0
    expected = probabilities[possible] * num_draws
    # Chi-square; eleven degrees of freedom at most: 31.3 is passed once in a thousand.
    assert ((counts[possible] - expected) ** 2 / expected).sum() < 31.3
    for seed in range(4):
        noise = all_seeded(requests, seed)
        first, second = (verify_draftless(requests, logits, noise) for _ in range(2))
        assert torch.equal(first.sampled_token_ids, second.sampled_token_ids)


@pytest.mark.parametrize(
    "mode", ["raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits"]
)
def test_logprobs_come_along(mode: str) -> None:
    top = 3
    requests = make_requests({}, *SAMPLED)
    logits = make_logits(requests, 1)
    metadata = sampling_metadata(requests, max_num_logprobs=top)
    output = verify_draftless(requests, logits, all_seeded(requests), metadata, mode=mode)
    found = output.logprobs_tensors
    assert found is not None
    assert found.logprobs.shape == found.logprob_token_ids.shape == (len(requests), top + 1)
    assert torch.equal(found.logprob_token_ids[:, :1], output.sampled_token_ids)
    for index, request in enumerate(requests):
        stock = single_step(request, logits[index], [], mode=mode, max_num_logprobs=-1)
        full = stock.logprobs_tensors.logprobs[0]
        token = output.sampled_token_ids[index, 0]
        torch.testing.assert_close(found.logprobs[index, 0], full[token])
        torch.testing.assert_close(found.logprobs[index, 1:], full.topk(top).values)
        assert found.selected_token_ranks[index] == (full >= full[token]).sum()
    # What the runner does with the logprobs of a step whose output has one column.
    assert len(found.tolists().logprobs) == len(requests)


def test_wanting_logprobs_does_not_change_the_tokens() -> None:
    requests = make_requests(*SAMPLED)
    logits = make_logits(requests, 2)
    plain, wanting = (
        verify_draftless(
            requests,
            logits,
            all_seeded(requests),
            sampling_metadata(requests, max_num_logprobs=wanted),
        )
        for wanted in (None, 2)
    )
    assert torch.equal(plain.sampled_token_ids, wanting.sampled_token_ids)


@pytest.mark.parametrize("budget", [*range(5), 100])
@pytest.mark.parametrize("drafts", [None, [], [[]] * 4])
@pytest.mark.parametrize("seeds", [{1: 5}, {}], ids=["a seed", "no seed"])
def test_thinking_budget_is_that_without_speculation(
    budget: int, drafts: list[list[int]] | None, seeds: dict[int, int]
) -> None:
    thinking = {"thinking_token_budget": budget}
    requests = make_requests(thinking, {"temperature": 1.0}, {}, thinking)
    requests[0].prompt.append(9)
    requests[3].output.insert(0, 9)

    def batch(num_spec_tokens: int) -> SamplingMetadata:
        metadata = sampling_metadata(requests)
        metadata.spec_token_ids = drafts
        metadata.thinking_budget_state_holder = budget_holder(requests, num_spec_tokens)
        return metadata

    logits = torch.randn(4, VOCAB, generator=torch.Generator().manual_seed(0))
    logits[:, 10] = -20.0
    noise = noise_of(requests, seeds)
    said = verify_draftless(requests, logits, noise, batch(3)).sampled_token_ids
    stock = make_verifier().sampler(logits.clone(), batch(0)).sampled_token_ids
    greedy = [0, 2, 3]
    assert said[greedy].tolist() == stock[greedy].tolist()
    assert said[2, 0] != 10
    assert [bool(said[index, 0] == 10) for index in (0, 3)] == [budget <= 2] * 2
