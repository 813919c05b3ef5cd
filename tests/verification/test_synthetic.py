"""Synthetic acceptance: the rates asked for come out, and the token after them is the target's."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm import SamplingParams
from vllm.config import SpeculativeConfig
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from tests.verification.requests import (
    BACKENDS,
    VOCAB,
    Request,
    make_verifier,
    noise_of,
    rows_of,
    sampling_metadata,
    seeded_step_by_step,
    single_step,
    spec_metadata,
    step_by_step,
    tokens_of,
    verify_draftless,
)
from vllm_ascend_spec.verification.synthetic import SyntheticAcceptance, join, rows_after


def request_with(drafts: list[int], **options: Any) -> Request:
    params = SamplingParams(**{"temperature": 0.0, **options})
    return Request(params, prompt=[1], output=[2], drafts=drafts)


def lengths_to_metadata(lengths: list[int]) -> SpecDecodeMetadata:
    return SpecDecodeMetadata.make_dummy([[3] * length for length in lengths], torch.device("cpu"))


def four_sigma(rate: float, count: int) -> float:
    return 4 * (rate * (1 - rate) / count) ** 0.5


@pytest.mark.parametrize(
    "rates",
    [[0.9, 0.5, 0.1], [0.7, 0.7, 0.7], [1.0, 0.5, 0.0], [0.6, 0.0, 0.0], [1.0, 1.0, 1.0]],
    ids=repr,
)
@pytest.mark.parametrize("ragged", [False, True])
def test_rates_come_out_as_asked(rates: list[float], ragged: bool) -> None:
    """Unconditional ones: the share of requests that accept the draft at each position."""
    count = 6_000
    lengths = [index % 4 if ragged else 3 for index in range(count)]
    metadata = lengths_to_metadata(lengths)
    uniforms = torch.rand(
        sum(lengths), dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    accepted = SyntheticAcceptance(rates).count_accepted(metadata, uniforms)
    assert accepted.dtype == torch.int64
    for position, rate in enumerate(rates):
        asked = accepted[torch.tensor(lengths) > position]
        share = (asked > position).double().mean().item()
        assert abs(share - rate) <= four_sigma(rate, len(asked))


def test_the_length_asked_for_comes_out() -> None:
    count, length = 6_000, 2.5
    rates = SpeculativeConfig._acceptance_length_to_rates(length, 3)
    metadata = lengths_to_metadata([3] * count)
    uniforms = torch.rand(3 * count, dtype=torch.float64, generator=torch.Generator())
    accepted = SyntheticAcceptance(rates).count_accepted(metadata, uniforms)
    assert 1 + accepted.double().mean().item() == pytest.approx(length, abs=four_sigma(0.5, count))


def test_acceptance_ends_at_the_first_rejection() -> None:
    metadata = lengths_to_metadata([3, 3, 3, 3])
    # Conditional rates: 0.8, 0.5, 0.5.
    acceptance = SyntheticAcceptance([0.8, 0.4, 0.2])
    uniforms = torch.tensor(
        [0.79, 0.49, 0.49, 0.79, 0.49, 0.5, 0.79, 0.5, 0.0, 0.8, 0.0, 0.0], dtype=torch.float64
    )
    assert acceptance.count_accepted(metadata, uniforms).tolist() == [3, 2, 1, 0]


def test_a_draft_of_minus_one_is_never_accepted_and_ends_the_drafts() -> None:
    metadata = spec_metadata([request_with(d) for d in ([3, -1, 4], [-1, 5, 6], [7, 8, -1], [-1])])
    uniforms = torch.zeros(10, dtype=torch.float64)
    accepted = SyntheticAcceptance([1.0, 1.0, 1.0]).count_accepted(metadata, uniforms)
    assert accepted.tolist() == [1, 0, 2, 0]


@pytest.mark.parametrize("lengths", [[0], [0, 0, 0], [0, 2, 0], [3, 0, 1]])
def test_requests_without_drafts_accept_none(lengths: list[int]) -> None:
    uniforms = torch.zeros(sum(lengths), dtype=torch.float64)
    accepted = SyntheticAcceptance([1.0, 1.0, 1.0]).count_accepted(
        lengths_to_metadata(lengths), uniforms
    )
    assert accepted.tolist() == lengths


@pytest.mark.parametrize("seed", range(20))
def test_rows_and_tokens_of_ragged_batches(seed: int) -> None:
    rng = random.Random(seed)
    requests = [
        request_with([rng.randrange(VOCAB) for _ in range(rng.randint(0, 4))])
        for _ in range(rng.randint(1, 6))
    ]
    accepted = [rng.randint(0, len(request.drafts)) for request in requests]
    last = [rng.randrange(VOCAB) for _ in requests]
    metadata, row, rows = spec_metadata(requests), 0, []
    for request, count in zip(requests, accepted, strict=True):
        rows.append(row + count)
        row += len(request.drafts) + 1
    counts = torch.tensor(accepted)
    assert rows_after(metadata, counts).tolist() == rows
    tokens = join(metadata, counts, torch.tensor(last, dtype=torch.int32))
    assert tokens.dtype == torch.int32
    assert tokens.shape == (len(requests), max(len(r.drafts) for r in requests) + 1)
    assert tokens_of(tokens) == [
        [*request.drafts[:count], token]
        for request, count, token in zip(requests, accepted, last, strict=True)
    ]
    # Tokens first, padding after them.
    for row_tokens, count in zip(tokens.tolist(), accepted, strict=True):
        assert set(row_tokens[count + 1 :]) <= {-1}


def test_only_the_synthetic_method_makes_one() -> None:
    assert SyntheticAcceptance.from_config(None) is None
    for method in ("standard", "block"):
        config = SimpleNamespace(rejection_sample_method=method, synthetic_acceptance_rates=None)
        assert SyntheticAcceptance.from_config(config) is None
    config = SimpleNamespace(
        rejection_sample_method="synthetic", synthetic_acceptance_rates=[0.8, 0.4, 0.0]
    )
    made = SyntheticAcceptance.from_config(config)
    assert made is not None
    assert made.rates.tolist() == pytest.approx([0.8, 0.5, 0.0])


# What the verifier makes of it.
DRAFTS = [[3, 5, 7], [], [4, -1], [6]]
PENALTY = {"repetition_penalty": 3.0, "frequency_penalty": 2.0}


def logits_for(requests: list[Request], seed: int = 0) -> torch.Tensor:
    rows = sum(len(request.drafts) + 1 for request in requests)
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("options", [{}, PENALTY], ids=["plain", "penalties"])
@pytest.mark.parametrize("sampled", [False, True], ids=["greedy", "one token left"])
def test_last_token_is_the_targets_after_the_accepted_drafts(
    backend: str, options: dict[str, Any], sampled: bool
) -> None:
    how = {"temperature": 0.9, "top_k": 1} if sampled else {}
    requests = [request_with(drafts, **options, **how) for drafts in DRAFTS]
    logits, counts = logits_for(requests), set()
    verifier = make_verifier(backend=backend, rates=[0.7, 0.5, 0.4])
    torch.manual_seed(0)
    for _ in range(30):
        output = verifier(spec_metadata(requests), None, logits, sampling_metadata(requests))
        said = tokens_of(output.sampled_token_ids)
        for request, rows, tokens in zip(requests, rows_of(requests, logits), said, strict=True):
            accepted = len(tokens) - 1
            assert tokens[:-1] == request.drafts[:accepted]
            greedy = Request(request.params.clone(), request.prompt, request.output)
            greedy.params.temperature, greedy.params.top_k = 0.0, 0
            step = single_step(greedy, rows[accepted], request.drafts[:accepted])
            assert tokens[-1] == int(step.sampled_token_ids)
            counts.add((len(request.drafts), accepted))
    assert counts == {(3, 0), (3, 1), (3, 2), (3, 3), (0, 0), (2, 0), (2, 1), (1, 0), (1, 1)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_sampled_last_token_has_the_targets_distribution(backend: str) -> None:
    """Also with a draft that the target would hardly ever say: nothing is taken from p for it."""
    options = {"temperature": 0.8, "top_p": 0.9}
    request = request_with([3, 5], **options)
    logits = logits_for([request])
    count, verifier = 3000, make_verifier(backend=backend, rates=[0.6, 0.3])
    batch = [request] * count
    torch.manual_seed(0)
    output = verifier(
        spec_metadata(batch), None, logits.repeat(count, 1), sampling_metadata(batch)
    ).sampled_token_ids
    for accepted in range(3):
        chosen = output[(output >= 0).sum(dim=1) == accepted + 1][:, accepted]
        step = single_step(
            request,
            logits[accepted],
            request.drafts[:accepted],
            mode="processed_logprobs",
            max_num_logprobs=-1,
        )
        expected = step.logprobs_tensors.logprobs[0].exp().double() * len(chosen)
        observed = torch.bincount(chosen.long(), minlength=VOCAB).double()
        likely = expected > 0
        assert observed[~likely].sum() == 0
        squares = ((observed - expected) ** 2 / expected)[likely].sum().item()
        # Eleven degrees of freedom at most; 37.4 is passed once in ten thousand.
        assert squares < 37.4
        assert len(chosen) > 750


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("options", [{}, PENALTY], ids=["plain", "penalties"])
def test_last_token_of_a_seed_is_that_of_its_position(
    backend: str, options: dict[str, Any]
) -> None:
    """Whatever is accepted before it, and beside requests without a seed and greedy ones."""
    requests = [request_with(drafts, temperature=0.9, **options) for drafts in DRAFTS]
    requests[1].params.temperature = 0.0
    seeds, counts = {0: 5, 2: -6}, set()
    logits = logits_for(requests)
    verifier = make_verifier(backend=backend, rates=[0.7, 0.5, 0.4])
    verifier.noise = noise_of(requests, seeds)
    torch.manual_seed(0)
    for _ in range(80):
        output = verifier(spec_metadata(requests), None, logits, sampling_metadata(requests))
        said, parts = tokens_of(output.sampled_token_ids), rows_of(requests, logits)
        for index, seed in seeds.items():
            one, accepted = requests[index], len(said[index]) - 1
            past = Request(one.params, one.prompt, [*one.output, *one.drafts[:accepted]])
            assert said[index][:-1] == one.drafts[:accepted]
            row = parts[index][accepted : accepted + 1]
            assert said[index][-1:] == seeded_step_by_step(past, row, seed)
            counts.add((index, accepted))
        assert said[1] == [step_by_step(requests[1], parts[1])[0]]
    assert counts == {(0, 0), (0, 1), (0, 2), (0, 3), (2, 0), (2, 1)}


def test_a_step_without_drafts_samples_as_the_other_rules_do() -> None:
    """Nothing to accept: the same noise, the same token."""
    request = request_with([], temperature=1.0)
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(3))
    said = []
    for rates in (None, [0.5, 0.5, 0.5]):
        noises = [noise_of([request], {0: 5}, later) for later in range(8)]
        outputs = [verify_draftless([request], logits, noise, rates=rates) for noise in noises]
        said.append([int(output.sampled_token_ids) for output in outputs])
    assert said[0] == said[1]
    assert len(set(said[0])) > 1


def test_greedy_and_sampled_requests_in_one_batch() -> None:
    requests = [request_with([3, 5]), request_with([4, 6], temperature=1.0), request_with([])]
    logits = logits_for(requests)
    output = make_verifier(rates=[1.0, 0.0])(
        spec_metadata(requests), None, logits, sampling_metadata(requests)
    )
    said = tokens_of(output.sampled_token_ids)
    assert said[0] == [3, int(logits[1].argmax())]
    assert said[1][0] == 4
    assert len(said[1]) == 2
    assert said[2] == [int(logits[6].argmax())]


def test_logprobs_are_those_of_the_rows() -> None:
    requests = [request_with([3, 5]), request_with([4])]
    logits = logits_for(requests)
    metadata = sampling_metadata(requests, max_num_logprobs=0)
    output = make_verifier(rates=[1.0, 0.0])(spec_metadata(requests), None, logits, metadata)
    said = tokens_of(output.sampled_token_ids)
    expected = logits.log_softmax(-1)
    width = output.sampled_token_ids.shape[1]
    tensors = output.logprobs_tensors
    for request, (first, tokens) in enumerate(zip((0, 3), said, strict=True)):
        for position, token in enumerate(tokens):
            cell = request * width + position
            assert tensors.logprob_token_ids[cell, 0] == token
            assert tensors.logprobs[cell, 0] == pytest.approx(
                float(expected[first + position, token]), abs=1e-5
            )


def test_logits_do_not_matter_for_acceptance() -> None:
    """A draft that the target forbids is accepted; a rejected one may still be said after all."""
    unlikely, certain = (request_with([draft], temperature=1.0) for draft in (3, 5))
    logits = torch.full((2, VOCAB), float("-inf"))
    logits[0, 5] = logits[1, 6] = 0.0
    for request, rates, expected in (
        (unlikely, [1.0], [3, 6]),
        (unlikely, [0.0], [5]),
        (certain, [0.0], [5]),
    ):
        output = make_verifier(rates=rates)(
            spec_metadata([request]), None, logits, sampling_metadata([request])
        )
        assert tokens_of(output.sampled_token_ids) == [expected]
