"""The verifier's tokens against those of vLLM's own sampler without speculation."""

from __future__ import annotations

import random
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm import SamplingParams
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

from tests.ops.oracle import Sampling, target_distribution
from tests.verification.requests import (
    BACKENDS,
    CUSTOM,
    VOCAB,
    Request,
    make_verifier,
    num_rows,
    rows_of,
    sampling_metadata,
    single_step,
    spec_metadata,
    step_by_step,
    tokens_of,
)
from vllm_ascend_spec.errors import BackendUnavailableError
from vllm_ascend_spec.verification import sampler as sampler_module

# Single tokens, a third of all pairs, and some triples.
BAD_WORDS = [
    [4],
    *([a, b] for a in range(VOCAB) for b in range(VOCAB) if (5 * a + b) % 3 == 0),
    *([a, a + 1, a + 2] for a in range(VOCAB - 2)),
]
# Options that change what a greedy request says, and whether its past output matters to them.
OPTIONS: dict[str, dict[str, Any]] = {
    "repetition_penalty": {"repetition_penalty": 1.9},
    "presence_penalty": {"presence_penalty": 1.5},
    "frequency_penalty": {"frequency_penalty": 1.2},
    "logit_bias": {"logit_bias": {3: 2.5, 5: -3.0, 0: 1.0}},
    "min_tokens": {"min_tokens": 5, "stop_token_ids": [1, 2, 4, 7]},
    "allowed_token_ids": {"allowed_token_ids": [0, 2, 3, 5, 8]},
    "bad_words": {"bad_words": BAD_WORDS},
    "adapter on the output": {"extra_args": {"repeat_penalty": 2.0}},
    "adapter on the prompt and the output": {"extra_args": {"follow": 3.0}},
}
NO_PAST = ("logit_bias", "allowed_token_ids")
# Options that change a sampled request and never a greedy one.
INVARIANT: dict[str, dict[str, Any]] = {
    "min_p": {"min_p": 0.2},
    "argmax-invariant adapter": {"extra_args": {"flatten": 0.5}},
}
DRAFT_LENS = (3, 0, 4, 2)


def make_request(rng: random.Random, options: dict[str, Any], num_drafts: int = 0) -> Request:
    options = dict(options)
    bad_words = options.pop("bad_words", [])
    return Request(
        params=SamplingParams(**{"temperature": 0.0, **options}),
        prompt=[rng.randrange(VOCAB) for _ in range(rng.randint(2, 6))],
        output=[rng.randrange(VOCAB) for _ in range(rng.randint(1, 3))],
        drafts=[-1] * num_drafts,
        bad_words=bad_words,
    )


def make_batch(
    seed: int, options: list[dict[str, Any]], custom: tuple[type, ...] = CUSTOM
) -> tuple[list[Request], torch.Tensor]:
    """Build requests and logits; three drafts in four are what the request would say anyway."""
    rng = random.Random(seed)
    requests = [make_request(rng, o, n) for o, n in zip(options, DRAFT_LENS, strict=True)]
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(num_rows(requests), VOCAB, generator=generator) * 2
    for request, rows in zip(requests, rows_of(requests, logits), strict=True):
        greedy = Request(
            request.params.clone(), request.prompt, request.output, [], request.bad_words
        )
        greedy.params.temperature = 0.0
        for position in range(len(request.drafts)):
            past = request.drafts[:position]
            right = int(single_step(greedy, rows[position], past, custom=custom).sampled_token_ids)
            is_right = rng.random() < 0.75
            request.drafts[position] = right if is_right else rng.randrange(VOCAB)
    return requests, logits


def verify(requests: list[Request], logits: torch.Tensor, **extra: Any) -> list[list[int]]:
    """Return the tokens the verifier gives each request."""
    metadata = sampling_metadata(requests, **extra)
    output = make_verifier()(spec_metadata(requests), None, logits, metadata)
    assert output.sampled_token_ids.dtype == torch.int32
    return tokens_of(output.sampled_token_ids)


def without_speculation(
    requests: list[Request], logits: torch.Tensor, custom: tuple[type, ...] = CUSTOM
) -> list[list[int]]:
    """Return the tokens vLLM's sampler gives each request, one at a time."""
    return [
        step_by_step(request, rows, custom)
        for request, rows in zip(requests, rows_of(requests, logits), strict=True)
    ]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", [*OPTIONS, *INVARIANT])
def test_greedy_requests_say_what_they_say_without_speculation(name: str, seed: int) -> None:
    option = {**OPTIONS, **INVARIANT}[name]
    requests, logits = make_batch(seed, [option, {}, option, option])
    assert verify(requests, logits) == without_speculation(requests, logits)


@pytest.mark.parametrize("seed", range(25))
def test_any_mixture_of_options_says_what_it_says_without_speculation(seed: int) -> None:
    rng = random.Random(seed)
    options: list[dict[str, Any]] = []
    for _ in DRAFT_LENS:
        mixed: dict[str, Any] = {}
        for option in (*OPTIONS.values(), *INVARIANT.values()):
            if rng.random() < 0.4:
                extra = {**mixed.get("extra_args", {}), **option.get("extra_args", {})}
                mixed.update(option)
                if extra:
                    mixed["extra_args"] = extra
        options.append(mixed)
    requests, logits = make_batch(seed, options)
    assert verify(requests, logits) == without_speculation(requests, logits)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_options_tested_here_change_what_is_said(name: str) -> None:
    option = OPTIONS[name]
    changed = past_matters = accepted = 0
    for seed in range(12):
        requests, logits = make_batch(seed, [option, {}, option, option])
        for request, rows in zip(requests, rows_of(requests, logits), strict=True):
            said = step_by_step(request, rows)
            accepted += len(said) - 1
            changed += said != rows[: len(said)].argmax(-1).tolist()
            forgetful = [int(single_step(request, r, []).sampled_token_ids) for r in rows]
            past_matters += said != forgetful[: len(said)]
    assert accepted > 20
    assert changed > 3
    assert past_matters > 0 or name in NO_PAST


def test_structured_output_may_force_a_stop_token_before_min_tokens() -> None:
    params = SamplingParams(
        temperature=0.0,
        min_tokens=9,
        stop_token_ids=[4],
        structured_outputs=StructuredOutputsParams(choice=["a"]),
    )
    request = Request(params, prompt=[1, 2], output=[3], drafts=[6, 4])
    logits = torch.full((3, VOCAB), float("-inf"))
    logits[0, [4, 6]] = torch.tensor([2.0, 1.0])
    logits[1, 4] = 1.0
    logits[2, [4, 7]] = torch.tensor([2.0, 1.0])
    assert step_by_step(request, logits) == [6, 4, 7]
    assert verify([request], logits) == [[6, 4, 7]]


class KeywordPartial(AdapterLogitsProcessor):
    """Builds its request processor with ``functools.partial`` and keywords."""

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: SamplingParams) -> Any:
        token = (params.extra_args or {}).get("favour")
        return None if token is None else partial(favour, token=token, amount=50.0)


def favour(output: list[int], logits: torch.Tensor, token: int, amount: float) -> torch.Tensor:
    logits[(token + len(output)) % VOCAB] += amount
    return logits


def test_request_processor_may_be_a_partial_with_keywords() -> None:
    options = {"extra_args": {"favour": 2}}
    requests, logits = make_batch(0, [options, {}, options, {}], (KeywordPartial,))
    expected = without_speculation(requests, logits, (KeywordPartial,))
    assert verify(requests, logits, custom=(KeywordPartial,)) == expected


SAMPLED: dict[str, dict[str, Any]] = {
    "plain": {},
    "top_k": {"top_k": 4},
    "top_p": {"top_p": 0.8},
    "min_p": {"min_p": 0.15},
    "everything": {"top_k": 8, "top_p": 0.9, "min_p": 0.05},
    "penalties": {"repetition_penalty": 1.5, "frequency_penalty": 0.7, "top_p": 0.9},
    "logit_bias and min_tokens": {**OPTIONS["logit_bias"], **OPTIONS["min_tokens"], "min_p": 0.1},
    "argmax-invariant adapter": {"extra_args": {"flatten": 0.5}, "top_k": 6},
    "argmax-invariant adapter and min_p": {"extra_args": {"flatten": 0.5}, "min_p": 0.2},
}


@pytest.mark.parametrize("name", SAMPLED)
@pytest.mark.parametrize("seed", range(3))
def test_sampled_requests_are_drawn_from_the_distribution_of_vllms_sampler(
    monkeypatch: pytest.MonkeyPatch, name: str, seed: int
) -> None:
    seen: dict[str, Any] = {}
    stock = sampler_module.verify_sample

    def record(logits: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        seen.update(kwargs, logits=logits.clone())
        return stock(logits, *args, **kwargs)

    monkeypatch.setattr(sampler_module, "verify_sample", record)
    sampled = {"temperature": 0.7, **SAMPLED[name]}
    requests, logits = make_batch(seed, [sampled, {"temperature": 1.3}, {}, sampled])
    verify(requests, logits)
    for index, (request, rows, used) in enumerate(
        zip(requests, rows_of(requests, logits), rows_of(requests, seen["logits"]), strict=True)
    ):
        if request.is_greedy:
            assert seen["temperature"][index] == 0
            continue
        parameters = Sampling(
            **{
                key: seen[key][index].item()
                for key in ("temperature", "top_k", "top_p", "min_p")
                if seen.get(key) is not None
            }
        )
        for position, row in enumerate(rows):
            stock_output = single_step(
                request,
                row,
                request.drafts[:position],
                mode="processed_logprobs",
                max_num_logprobs=-1,
            )
            expected = stock_output.logprobs_tensors.logprobs[0].exp().tolist()
            actual = target_distribution(used[position].float().tolist(), parameters)
            assert actual == pytest.approx(expected, abs=1e-5)


def test_mixed_batch_verifies_greedy_requests_greedily() -> None:
    options = [{}, {"temperature": 0.9}, OPTIONS["repetition_penalty"], {"temperature": 2.0}]
    for seed in range(5):
        requests, logits = make_batch(seed, options)
        said = verify(requests, logits)
        for index, rows in enumerate(rows_of(requests, logits)):
            if requests[index].is_greedy:
                assert said[index] == step_by_step(requests[index], rows)


def test_draft_probs_reach_the_op() -> None:
    request = Request(SamplingParams(temperature=1.0), prompt=[1], output=[2], drafts=[3])
    logits = torch.zeros(2, VOCAB)
    # The target likes token 3 as much as the others; a draft that always says 3 is mostly wrong,
    # one that says it as seldom as the target never is.
    accepted = {}
    for name, probability in (("certain", 1.0), ("alike", 1 / VOCAB)):
        probs = torch.full((1, VOCAB), (1 - probability) / (VOCAB - 1))
        probs[0, 3] = probability
        torch.manual_seed(0)
        outputs = [
            make_verifier()(spec_metadata([request]), probs, logits, sampling_metadata([request]))
            for _ in range(60)
        ]
        accepted[name] = sum(len(tokens_of(o.sampled_token_ids)[0]) == 2 for o in outputs)
    assert accepted["alike"] == 60
    assert 0 < accepted["certain"] < 20


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_and_requests_are_not_modified(temperature: float, dtype: torch.dtype) -> None:
    everything = {k: v for option in OPTIONS.values() for k, v in option.items()}
    requests, logits = make_batch(3, [{**everything, "temperature": temperature}, {}, {}, {}])
    logits = logits.to(dtype)
    before = logits.clone(), [(list(r.output), list(r.drafts)) for r in requests]
    verify(requests, logits)
    assert torch.equal(logits, before[0])
    assert [(r.output, r.drafts) for r in requests] == before[1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_logits_are_treated_like_the_same_values_in_float32(dtype: torch.dtype) -> None:
    requests, logits = make_batch(4, [OPTIONS["repetition_penalty"], {}, {}, {}])
    narrow = logits.to(dtype)
    assert verify(requests, narrow) == verify(requests, narrow.float())


def test_unknown_backend_is_not_replaced_silently() -> None:
    request = Request(SamplingParams(temperature=0.0), prompt=[1], output=[2], drafts=[3])
    verifier = make_verifier()
    # The options refuse this name already.
    verifier.backend = "abacus"
    with pytest.raises(BackendUnavailableError, match="abacus"):
        verifier(
            spec_metadata([request]), None, torch.zeros(2, VOCAB), sampling_metadata([request])
        )


class TestBlockRule:
    """``verify_rule="block"``: the op is asked for it, and its answer is the answer."""

    def batch(self, num_greedy: int = 1) -> tuple[list[Request], torch.Tensor, torch.Tensor]:
        """Return requests of three drafts each, logits, and the drafts' distributions."""
        generator = torch.Generator().manual_seed(2)
        requests = [
            Request(SamplingParams(temperature=t, top_p=0.95), [1], [2], [3, 5, 7])
            for t in (1.0, 0.7, *[0.0] * num_greedy)
        ]
        logits = torch.randn(num_rows(requests), VOCAB, generator=generator)
        probs = torch.randn(3 * len(requests), VOCAB, generator=generator).softmax(-1)
        return requests, logits, probs

    @pytest.mark.parametrize("with_probs", [False, True])
    @pytest.mark.parametrize("rule", ["token", "block"])
    @pytest.mark.parametrize("backend", BACKENDS)
    def test_the_op_is_asked_for_the_rule(
        self, backend: str, rule: str, with_probs: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: list[dict[str, Any]] = []
        stock = sampler_module.verify_sample

        def record(*args: Any, **kwargs: Any) -> Any:
            calls.append(dict(kwargs))
            calls[-1]["answer"] = stock(*args, **kwargs)
            return calls[-1]["answer"]

        monkeypatch.setattr(sampler_module, "verify_sample", record)
        requests, logits, probs = self.batch()
        spec, metadata = spec_metadata(requests), sampling_metadata(requests)
        given = probs if with_probs else None
        said = make_verifier(rule=rule, backend=backend)(spec, given, logits, metadata)
        (call,) = calls
        assert (call["rule"], call["backend"]) == (rule, backend)
        assert call["draft_probs"] is given
        assert torch.equal(said.sampled_token_ids, call["answer"][0])
        # The same numbers through the op by itself.
        uniforms = {name: call[name] for name in ("accept_uniform", "sample_uniform")}
        expected, _ = stock(
            logits,
            spec.draft_token_ids,
            spec.cu_num_draft_tokens,
            3,
            temperature=torch.tensor([1.0, 0.7, 0.0]),
            top_p=torch.full((3,), 0.95),
            draft_probs=given,
            rule=rule,
            backend=backend,
            **uniforms,
        )
        assert torch.equal(said.sampled_token_ids, expected)

    def test_the_rule_changes_what_sampled_requests_say_and_nothing_else(self) -> None:
        requests, logits, probs = self.batch()
        said: dict[str, list[list[list[int]]]] = {}
        for rule in ("token", "block"):
            torch.manual_seed(0)
            said[rule] = []
            for _ in range(300):
                verifier = make_verifier(rule=rule)
                output = verifier(
                    spec_metadata(requests), probs, logits, sampling_metadata(requests)
                )
                said[rule].append(tokens_of(output.sampled_token_ids))
        assert said["token"] != said["block"]
        assert [row[2] for row in said["token"]] == [row[2] for row in said["block"]]
        accepted = {rule: sum(len(r) for row in said[rule] for r in row) for rule in said}
        assert accepted["block"] > accepted["token"]

    def test_greedy_batches_need_no_rule(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sampler_module, "verify_sample", None)
        requests, logits, _ = self.batch()
        alone, rows = requests[2:], logits[8:]
        verifier = make_verifier(rule="block")
        output = verifier(spec_metadata(alone), None, rows, sampling_metadata(alone))
        assert tokens_of(output.sampled_token_ids) == [step_by_step(alone[0], rows)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_masks_of_structured_output_come_before_everything_else(backend: str) -> None:
    """The verifier's own entry for them; penalties and sampling then see the masked rows."""
    free = Request(SamplingParams(temperature=0.0), prompt=[1], output=[2], drafts=[3, 4])
    bound = Request(
        SamplingParams(temperature=1.0, repetition_penalty=1.5), prompt=[1], output=[2], drafts=[3]
    )
    words = torch.tensor([[0b1000], [0b100000]], dtype=torch.int32).numpy()
    output = SimpleNamespace(structured_output_request_ids=["bound"], grammar_bitmask=words)
    scheduled = SimpleNamespace(scheduled_spec_decode_tokens={"free": [3, 4], "bound": [3]})
    verifier, requests = make_verifier(backend=backend), [free, bound]
    logits = torch.randn(5, VOCAB, generator=torch.Generator().manual_seed(0))
    before = logits.clone()
    verifier.mask_logits(logits, scheduled, output, ["free", "bound"])
    said = verifier(spec_metadata(requests), None, logits, sampling_metadata(requests))
    assert tokens_of(said.sampled_token_ids) == [step_by_step(free, before[:3]), [3, 5]]
