"""Requests with a seed: the verifier's tokens against a race on vLLM's own distributions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from vllm import SamplingParams

from tests.ops.markov import deviation
from tests.verification.requests import (
    BACKENDS,
    VOCAB,
    Request,
    make_verifier,
    noise_of,
    num_rows,
    request,
    rows_of,
    sampling_metadata,
    seeded_step_by_step,
    single_step,
    spec_metadata,
    step_by_step,
    tokens_of,
    verify_draftless,
)
from vllm_ascend_spec.verification import sampler as sampler_module

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "top_k": {"top_k": 4},
    "top_p": {"top_p": 0.8},
    "min_p": {"min_p": 0.15},
    "everything": {"top_k": 8, "top_p": 0.9, "min_p": 0.05},
    "penalties": {"repetition_penalty": 1.5, "frequency_penalty": 0.7, "top_p": 0.9},
    "logit_bias": {"logit_bias": {3: 2.5, 5: -3.0, 0: 1.0}, "min_p": 0.1},
    "argmax-invariant adapter": {"extra_args": {"flatten": 0.5}, "top_k": 6},
}
# Those of the generators of PyTorch are unsigned, the op's are signed.
SEEDS = (0, 1, -1, 7, 2**63 - 1, -(2**63), 2**32)
COUNTS = (3, 0, 4, 2, 1)


def make_batch(
    seed: int, options: list[dict[str, Any]], seeds: dict[int, int]
) -> tuple[list[Request], torch.Tensor]:
    """Build requests and logits; most drafts are what a request would say anyway."""
    rng = random.Random(seed)
    requests = [
        Request(
            SamplingParams(**{"temperature": 0.0, **own}),
            prompt=[rng.randrange(VOCAB) for _ in range(rng.randint(2, 6))],
            output=[rng.randrange(VOCAB) for _ in range(rng.randint(1, 3))],
            drafts=[-1] * count,
        )
        for own, count in zip(options, COUNTS, strict=False)
    ]
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(num_rows(requests), VOCAB, generator=generator) * 2
    for index, (one, rows) in enumerate(zip(requests, rows_of(requests, logits), strict=True)):
        for place in range(len(one.drafts)):
            first = len(one.prompt) + len(one.output) + place
            past = Request(one.params, one.prompt, [*one.output, *one.drafts[:place]])
            row = rows[place : place + 1]
            right = (
                step_by_step(past, row)
                if one.is_greedy
                else seeded_step_by_step(past, row, seeds.get(index, 0), first)
            )
            one.drafts[place] = right[0] if rng.random() < 0.8 else rng.randrange(VOCAB)
    return requests, logits


def verify(
    requests: list[Request], logits: torch.Tensor, seeds: dict[int, int], **how: Any
) -> list[list[int]]:
    verifier = make_verifier(**how)
    verifier.noise = noise_of(requests, seeds)
    output = verifier(spec_metadata(requests), None, logits, sampling_metadata(requests))
    assert output.sampled_token_ids.dtype == torch.int32
    return tokens_of(output.sampled_token_ids)


def by_themselves(
    requests: list[Request], logits: torch.Tensor, seeds: dict[int, int]
) -> Iterator[tuple[int, list[int]]]:
    """Yield the index and the tokens of each request whose tokens are certain."""
    for index, (one, rows) in enumerate(zip(requests, rows_of(requests, logits), strict=True)):
        if one.is_greedy:
            yield index, step_by_step(one, rows)
        elif index in seeds:
            yield index, seeded_step_by_step(one, rows, seeds[index])


class Calls:
    """Notes which ops the verifier calls, and with what."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[str, dict[str, Any], Any]] = []
        for name in ("verify_greedy", "verify_sample", "verify_seeded"):
            monkeypatch.setattr(sampler_module, name, self.noting(name))

    def noting(self, name: str) -> Any:
        stock = getattr(sampler_module, name)

        def note(*args: Any, **named: Any) -> Any:
            answer = stock(*args, **named)
            self.made.append((name, named, answer))
            return answer

        return note

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.made]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", OPTIONS)
def test_each_request_of_a_batch_says_what_it_says_by_itself(name: str, backend: str) -> None:
    sampled = {"temperature": 0.8, **OPTIONS[name]}
    accepted = 0
    for turn in range(6):
        options = [sampled, {"temperature": 1.3}, {}, sampled, sampled]
        seeds = {0: SEEDS[turn], 1: 5, 3: SEEDS[-turn]}
        requests, logits = make_batch(turn, options, seeds)
        said = verify(requests, logits, seeds, backend=backend)
        # The last samples without a seed.
        expected = dict(by_themselves(requests, logits, seeds))
        assert {index: said[index] for index in expected} == expected
        assert [*expected] == [0, 1, 2, 3]
        accepted += sum(len(said[index]) - 1 for index in (0, 3))
    assert accepted > 8


@pytest.mark.parametrize("backend", BACKENDS)
def test_any_seed_of_64_bits_is_one_of_its_own(backend: str) -> None:
    requests = [request(temperature=1.0) for _ in SEEDS]
    said = []
    for turn in range(8):
        logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(turn))
        rows, seeds = logits.repeat(len(SEEDS), 1), dict(enumerate(SEEDS))
        said.append(verify(requests, rows, seeds, backend=backend))
        assert said[-1] == [tokens for _, tokens in by_themselves(requests, rows, seeds)]
    texts = [tuple(step[index][0] for step in said) for index in range(len(SEEDS))]
    assert len(set(texts)) == len(SEEDS)


@pytest.mark.parametrize(
    ("temperatures", "seeds", "names"),
    [
        ((0.0, 0.0), {}, ["verify_greedy"]),
        ((0.0, 0.0), {0: 1}, ["verify_greedy"]),
        ((0.0, 0.9), {}, ["verify_sample"]),
        ((0.9, 0.7), {0: 1, 1: 2}, ["verify_seeded"]),
        ((0.0, 0.7), {1: 2}, ["verify_seeded"]),
        ((0.9, 0.7), {1: 2}, ["verify_seeded", "verify_sample"]),
    ],
)
def test_only_ops_that_a_batch_needs_are_called(
    temperatures: tuple[float, ...],
    seeds: dict[int, int],
    names: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = Calls(monkeypatch)
    requests = [request((3, 4), temperature=temperature) for temperature in temperatures]
    verify(requests, torch.zeros(6, VOCAB), seeds)
    assert calls.names == names


@pytest.mark.parametrize("rule", ["token", "block"])
def test_requests_without_a_seed_keep_the_rule_of_the_engine(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    requests = [request((3, 4), temperature=t) for t in (0.9, 0.7, 0.0, 0.5)]
    logits = torch.randn(12, VOCAB, generator=torch.Generator().manual_seed(1))
    probs = torch.rand(8, VOCAB, generator=torch.Generator().manual_seed(2)).softmax(-1)
    verifier = make_verifier(rule=rule)
    verifier.noise = noise_of(requests, {0: 3, 3: 4})
    output = verifier(spec_metadata(requests), probs, logits, sampling_metadata(requests))
    (_, seeded, by_seed), (_, others, by_rule) = calls.made
    assert torch.equal(seeded["temperature"], torch.tensor([0.9, 0.0, 0.0, 0.5]))
    assert torch.equal(others["temperature"], torch.tensor([0.0, 0.7, 0.0, 0.0]))
    assert others["rule"] == rule
    assert others["draft_probs"] is probs
    for index, source in enumerate((by_seed, by_rule, by_seed, by_seed)):
        assert torch.equal(output.sampled_token_ids[index], source[0][index])


@pytest.mark.parametrize("rule", ["token", "block"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_requests_without_a_seed_have_the_targets_law_beside_one_with(
    backend: str, rule: str
) -> None:
    count = 4000
    generator = torch.Generator().manual_seed(3)
    row = torch.randn(VOCAB, generator=generator)
    law = torch.rand(VOCAB, generator=generator).softmax(-1)
    drafts = torch.multinomial(law, count + 1, replacement=True, generator=generator).tolist()
    requests = [request((draft,), temperature=0.8, top_p=0.9) for draft in drafts]
    torch.manual_seed(0)
    verifier = make_verifier(rule=rule, backend=backend)
    verifier.noise = noise_of(requests, {count: 3})
    probs = law.repeat(count + 1, 1)
    logits = row.repeat(2 * count + 2, 1)
    output = verifier(spec_metadata(requests), probs, logits, sampling_metadata(requests))
    stock = single_step(requests[0], row, [], mode="processed_logprobs", max_num_logprobs=-1)
    first = output.sampled_token_ids[:count, 0].long()
    probabilities = stock.logprobs_tensors.logprobs[0].double().exp()
    assert abs(deviation(torch.bincount(first, minlength=VOCAB), probabilities)) < 5


@pytest.mark.parametrize("rule", ["token", "block", "seeded"])
@pytest.mark.parametrize("with_probs", [False, True])
def test_neither_the_rule_nor_the_drafts_laws_matter_to_a_seed(with_probs: bool, rule: str) -> None:
    seeds = {0: 9, 2: -4}
    options = [{"temperature": 1.0}, {}, {"temperature": 0.7, "top_k": 5}]
    requests, logits = make_batch(4, options, seeds)
    spec = spec_metadata(requests)
    probs = torch.rand(len(spec.draft_token_ids), VOCAB).softmax(-1) if with_probs else None
    verifier = make_verifier(rule=rule)
    verifier.noise = noise_of(requests, seeds)
    output = verifier(spec, probs, logits, sampling_metadata(requests))
    expected = [tokens for _, tokens in by_themselves(requests, logits, seeds)]
    assert tokens_of(output.sampled_token_ids) == expected


def test_a_request_without_a_seed_has_the_token_rule_with_the_rule_for_seeds() -> None:
    assert make_verifier(rule="seeded").rule == "token"


def text_of(name: str, drafting: str, others: int = 0, length: int = 24) -> list[int]:
    """Return a text with a seed, whose logits are a function of the position alone."""
    rng = random.Random(f"{drafting} {others}")
    table = torch.randn(length + 8, VOCAB, generator=torch.Generator().manual_seed(len(name)))
    own = request(temperature=1.1, **OPTIONS[name])
    start = len(own.output)
    while (at := len(own.output) - start) < length:
        own.drafts = []
        for place in range(rng.randint(0, 4) if drafting != "none" else 0):
            past = Request(own.params, own.prompt, [*own.output, *own.drafts])
            right = seeded_step_by_step(past, table[at + place][None], seed=11)
            wrong = rng.random() < 0.3 or drafting == "wrong"
            own.drafts += [rng.choice([-1, rng.randrange(VOCAB)])] if wrong else right
        beside = [request((1, 2), temperature=rng.choice([0.0, 0.6])) for _ in range(others)]
        rows = torch.cat([torch.randn(3 * others, VOCAB), table[at : at + len(own.drafts) + 1]])
        batch, seeds = [*beside, own], {others: 11}
        if drafting == "none" and not others:
            tokens = verify_draftless(batch, rows, noise_of(batch, seeds)).sampled_token_ids
            own.output += tokens[0].tolist()
        else:
            own.output += verify(batch, rows, seeds)[others]
    return own.output[start : start + length]


@pytest.mark.parametrize("name", OPTIONS)
def test_text_of_a_seed_depends_on_neither_drafts_nor_neighbours(name: str) -> None:
    text = text_of(name, "none")
    assert text_of(name, "right") == text
    assert text_of(name, "wrong") == text
    assert text_of(name, "right", others=3) == text
    assert text_of(name, "none", others=2) == text
    assert len(set(text)) > 2


def test_steps_with_seeds_alone_draw_no_random_numbers() -> None:
    requests = [request((3, 4), temperature=1.0), request()]
    before = torch.get_rng_state()
    verify(requests, torch.zeros(4, VOCAB), {0: 5})
    assert torch.equal(torch.get_rng_state(), before)


def test_vllms_generators_are_not_drawn_from() -> None:
    requests = [request((3, 4), temperature=1.0), request((5,), temperature=1.0)]
    own = torch.Generator().manual_seed(5)
    before = own.get_state()
    verifier = make_verifier()
    verifier.noise = noise_of(requests, {0: 5})
    metadata = sampling_metadata(requests, generators={0: own})
    verifier(spec_metadata(requests), None, torch.zeros(5, VOCAB), metadata)
    assert torch.equal(own.get_state(), before)
