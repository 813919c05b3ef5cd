"""The block rule and synthetic acceptance in an engine; how each is told from the token rule."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from vllm.sampling_params import StructuredOutputsParams

from tests.engines import MAX_TOKENS, assert_same, token_ids
from tests.verification.requests import BACKENDS
from tests.zoo import SPECS
from vllm_ascend_spec.metrics.acceptance import AcceptanceCounts, from_engine
from vllm_ascend_spec.metrics.rule import rule_from_engine
from vllm_ascend_spec.verification import sampler as sampler_module

PROBABILISTIC = {"draft_sample_method": "probabilistic"}
SAMPLED = {"temperature": 0.8}


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def block(backend: str, make_engine: Any) -> Any:
    """Return an engine that was asked for the rule in one of the two ways."""
    spec, ours = {**SPECS["eagle"], **PROBABILISTIC}, {"verify_backend": backend}
    if backend == "reference":
        spec["rejection_sample_method"] = "block"
    else:
        ours["verify_rule"] = "block"
    return make_engine(spec, additional_config={"ascend_spec": ours})


class Calls:
    """Records how the op is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stock = sampler_module.verify_sample
        self.seen: list[tuple[str, bool]] = []
        self.tokens = self.requests = 0
        monkeypatch.setattr(sampler_module, "verify_sample", self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        output, counts = self.stock(*args, **kwargs)
        if args[1].shape[0]:
            self.seen.append((kwargs["rule"], kwargs["draft_probs"] is not None))
            self.tokens += int(counts.sum())
            self.requests += counts.shape[0]
        return output, counts


def test_block_rule_reaches_the_op_with_the_drafts_distributions(
    backend: str, block: Any, generate: Any, prompts: list[str], monkeypatch: Any
) -> None:
    del backend
    calls = Calls(monkeypatch)
    outputs = generate(block, prompts[:8], **SAMPLED)
    assert all(len(output.token_ids) == MAX_TOKENS for output in outputs)
    assert set(calls.seen) == {("block", True)}
    assert calls.tokens / calls.requests > 1.3


def test_block_rule_accepts_about_as_much_as_the_token_rule_or_more(
    block: Any, make_engine: Any, generate: Any, prompts: list[str], monkeypatch: Any
) -> None:
    """Not a proof, that is in tests/ops; a rule fed with wrong numbers falls far behind."""
    calls = Calls(monkeypatch)
    lengths: dict[str, float] = {}
    token = make_engine({**SPECS["eagle"], **PROBABILISTIC})
    for rule, llm in (("token", token), ("block", block)):
        calls.tokens = calls.requests = 0
        calls.seen.clear()
        generate(llm, prompts[:24], max_tokens=64, **SAMPLED)
        assert set(calls.seen) == {(rule, True)}
        lengths[rule] = calls.tokens / calls.requests
    # Standard deviation of the difference: about 0.05.
    assert lengths["block"] > lengths["token"] - 0.2


def test_greedy_requests_are_the_same_with_the_block_rule(
    expect: Any, block: Any, generate: Any, prompts: list[str]
) -> None:
    expected = token_ids(expect(prompts[:16]))
    assert_same(token_ids(generate(block, prompts[:16])), expected)


def test_greedy_requests_beside_sampled_ones_are_the_same_with_the_block_rule(
    plain: Any, block: Any, prompts: list[str]
) -> None:
    from vllm import SamplingParams

    greedy = SamplingParams(temperature=0, max_tokens=48, ignore_eos=True)
    sampled = SamplingParams(temperature=1.0, max_tokens=48, ignore_eos=True)
    kinds = [greedy, sampled, sampled, greedy, sampled, greedy]
    actual = block.generate(prompts[:6], kinds, use_tqdm=False)
    for prompt, kind, ours in zip(prompts, kinds, actual, strict=False):
        if kind is greedy:
            (theirs,) = plain.generate([prompt], greedy, use_tqdm=False)
            assert_same(token_ids(ours.outputs), token_ids(theirs.outputs))


def test_sampling_with_one_token_left_is_greedy_with_the_block_rule(
    expect: Any, block: Any, generate: Any, prompts: list[str]
) -> None:
    expected = token_ids(expect(prompts[:8]))
    actual = generate(block, prompts[:8], temperature=1.0, top_k=1)
    assert_same(token_ids(actual), expected)


def test_grammars_bind_sampled_requests_with_the_block_rule(
    block: Any, generate: Any, prompts: list[str]
) -> None:
    regex = r"[a-z]{3,9}( [a-z]{3,9}){6}"
    grammar = StructuredOutputsParams(regex=regex)
    options = {"structured_outputs": grammar, "ignore_eos": False, "max_tokens": 96}
    answers = generate(block, prompts[:6], **options, **SAMPLED)
    assert all(re.fullmatch(regex, output.text) for output in answers)


def test_stock_draft_loop_hands_the_distributions_over(
    make_engine: Any, generate: Any, prompts: list[str], monkeypatch: Any
) -> None:
    ours = {"ascend_spec": {"draft_loop": "stock", "verify_rule": "block"}}
    llm = make_engine({**SPECS["eagle"], **PROBABILISTIC}, additional_config=ours)
    calls = Calls(monkeypatch)
    generate(llm, prompts[:4], max_tokens=16, **SAMPLED)
    assert set(calls.seen) == {("block", True)}


def synthetic(make_engine: Any, backend: str, **options: Any) -> Any:
    spec = {**SPECS["eagle"], "rejection_sample_method": "synthetic", **options}
    return make_engine(spec, additional_config={"ascend_spec": {"verify_backend": backend}})


def measure(llm: Any, generate: Any, prompts: list[str], **sampling: Any) -> AcceptanceCounts:
    torch.manual_seed(0)
    before = from_engine(llm.get_metrics())
    outputs = generate(llm, prompts, max_tokens=64, **sampling)
    assert all(len(output.token_ids) == 64 for output in outputs)
    return from_engine(llm.get_metrics()) - before


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_acceptance_length_asked_for_comes_out(
    temperature: float, backend: str, make_engine: Any, generate: Any, prompts: list[str]
) -> None:
    llm = synthetic(make_engine, backend, synthetic_acceptance_length=2.5)
    accepted = measure(llm, generate, prompts[:16], temperature=temperature)
    # Accepted drafts per step: one, or by chance two; standard deviation 0.5.
    assert accepted.num_drafts > 300
    assert accepted.tokens_per_step == pytest.approx(2.5, abs=3 * 0.5 / accepted.num_drafts**0.5)


def test_the_acceptance_rates_asked_for_come_out(
    backend: str, make_engine: Any, generate: Any, prompts: list[str]
) -> None:
    rates = [0.8, 0.5, 0.2]
    llm = synthetic(make_engine, backend, synthetic_acceptance_rates=rates)
    accepted = measure(llm, generate, prompts[:16])
    for share, rate in zip(accepted.per_position, rates, strict=True):
        assert share == pytest.approx(
            rate, abs=3 * (rate * (1 - rate) / accepted.num_drafts) ** 0.5
        )


def test_synthetic_acceptance_keeps_grammars_whole(
    backend: str, make_engine: Any, generate: Any, prompts: list[str]
) -> None:
    """Drafts that a grammar refuses never come to be accepted."""
    llm = synthetic(make_engine, backend, synthetic_acceptance_length=2.5)
    regex = r"[a-z]{3,9}( [a-z]{3,9}){6}"
    grammar = StructuredOutputsParams(regex=regex)
    options = {"structured_outputs": grammar, "ignore_eos": False, "max_tokens": 96}
    assert all(re.fullmatch(regex, o.text) for o in generate(llm, prompts[:6], **options))


def test_metrics_name_the_rule_of_the_newest_engine(make_engine: Any) -> None:
    """Engines of their own: those above are shared, and older than one another."""
    synthetic_spec = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 1.5}
    for number, (spec, ours, expected) in enumerate(
        [
            ({**SPECS["eagle"], **synthetic_spec}, {}, "synthetic"),
            (SPECS["eagle"], {"verify_rule": "block"}, "block"),
            (None, {}, None),
            (SPECS["eagle"], {}, "token"),
        ]
    ):
        options = {"additional_config": {"ascend_spec": ours}} if ours else {}
        llm = make_engine(spec, max_num_seqs=2 + number, **options)
        metrics = llm.get_metrics()
        assert rule_from_engine(metrics) == expected
        labels = [m.labels for m in metrics if m.name == "vllm:spec_decode_verify_rule"]
        lossless = {"synthetic": "false"}.get(expected or "", "true")
        assert labels == ([{"rule": expected, "lossless": lossless}] if expected else [])
