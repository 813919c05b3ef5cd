"""Sampled through the engine, speculation leaves the distribution of the text as it is.

The exact proof is in tests/ops/test_enumeration.py; this shows that drafter, runner and verifier
hand each other the right things (the drafts' distributions, above all).
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm import SamplingParams, TokensPrompt
from vllm.sampling_params import StructuredOutputsParams

from tests.e2e.drafts import Drafts, watch
from tests.e2e.tiny import (
    KNOWN,
    write_dflash_head,
    write_draft,
    write_dspark_head,
    write_eagle3_head,
    write_head,
    write_mlp_speculator,
    write_target,
    write_tokenizer,
)
from vllm_ascend_spec.methods.hybrid.drafter import HybridMixin
from vllm_ascend_spec.methods.loops import sampling
from vllm_ascend_spec.methods.loops.sampling import DraftSampler

# By day enough for the negative controls below, by night to notice less.
SAMPLES = 20_000 if "TESTS_COMPILE_ALL" in os.environ else 8_000
# The last few tokens stood there before, so ngram finds something to draft. One more than a block:
# the prefix cache has all but one of them, and vLLM then pads the first step with drafts of -1.
PROMPT = ([1, 2, 3, 4, 5, 6, 1, 2, 3, 7, 4, 1, 2] * 3)[6:39]
ARGUMENTS: dict[str, Any] = {
    "max_num_seqs": 256,
    "max_model_len": 64,
    "block_size": 32,
    "skip_tokenizer_init": True,
    "max_num_batched_tokens": 4096,
}
# vLLM takes no larger n than 16,384.
FOLD = 4
# A two-sample chi-square of this many degrees of freedom stays below it in all but 1 of 10^5 runs.
SIGMAS = 4.5
# How drafts reach the verifier: one-hot, sampled, as many as there are, or all of this.
SPECS: dict[str, dict[str, Any]] = {
    "one-hot": {"method": "eagle", "num_speculative_tokens": 3, "draft_sample_method": "greedy"},
    "sampled": {
        "method": "eagle",
        "num_speculative_tokens": 3,
        "draft_sample_method": "probabilistic",
    },
    "sampled, of a part of the vocabulary": {
        "method": "eagle3",
        "num_speculative_tokens": 3,
        "draft_sample_method": "probabilistic",
    },
    "sampled, draft model": {
        "method": "draft_model",
        "num_speculative_tokens": 2,
        "draft_sample_method": "probabilistic",
    },
    "sampled, heads": {
        "method": "mlp_speculator",
        "num_speculative_tokens": 3,
        "draft_sample_method": "probabilistic",
    },
    # All drafts of a step in one pass: none has seen the ones before it.
    "sampled, peagle": {
        "method": "eagle3",
        "num_speculative_tokens": 3,
        "parallel_drafting": True,
        "draft_sample_method": "probabilistic",
    },
    "sampled, dflash": {
        "method": "dflash",
        "num_speculative_tokens": 3,
        "draft_sample_method": "probabilistic",
    },
    # Likewise, but each is then corrected by the one before it; of a part of the vocabulary.
    "sampled, dspark": {
        "method": "dspark",
        "num_speculative_tokens": 3,
        "draft_sample_method": "probabilistic",
    },
    # Suffix trees beside a model: one-hot drafts of any number, and sampled ones, in one batch.
    "mixed": {
        "method": "hybrid",
        "num_speculative_tokens": 3,
        "draft_sample_method": "probabilistic",
    },
    "ragged": {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "prompt_lookup_min": 1,
        "prompt_lookup_max": 2,
    },
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the folders of the target and of each method's draft."""
    folder: Path = tmp_path_factory.mktemp("tiny")
    target = write_target(folder / "target")
    write_tokenizer(target)
    return {
        "target": target,
        "eagle": write_head(folder / "eagle", target),
        # Its end is amid the continuations.
        "short": write_head(folder / "short", target, max_position_embeddings=len(PROMPT) + 5),
        "eagle3": write_eagle3_head(folder / "eagle3"),
        "peagle": write_eagle3_head(folder / "peagle", in_one_pass=True),
        "dflash": write_dflash_head(folder / "dflash"),
        "dspark": write_dspark_head(folder / "dspark"),
        "mlp_speculator": write_mlp_speculator(folder / "mlp_speculator", num_drafts=3),
        "draft_model": write_draft(folder / "draft", target),
    }


def sample(llm: Any, samples: int = SAMPLES, **options: Any) -> Counter[tuple[int, ...]]:
    """Count the second to fourth token of many continuations; the first is never a draft."""
    # Each of n is a request of its own, but vLLM looks at what they share once.
    parameters = SamplingParams(
        n=samples // FOLD,
        temperature=0.8,
        top_p=0.95,
        max_tokens=4,
        ignore_eos=True,
        detokenize=False,
        **options,
    )
    torch.manual_seed(1)
    prompt = TokensPrompt(prompt_token_ids=PROMPT)
    outputs = llm.generate([prompt] * FOLD, parameters, use_tqdm=False)
    return Counter(tuple(one.token_ids[1:]) for output in outputs for one in output.outputs)


def excess(ours: Counter[Any], theirs: Counter[Any]) -> float:
    """Return how far, in standard deviations, two samples of equal size are apart."""
    pooled, samples = ours + theirs, ours.total()
    assert theirs.total() == samples
    frequent = [key for key, count in pooled.items() if count >= 20]
    cells = [(ours[key], theirs[key]) for key in frequent]
    cells.append((samples - sum(a for a, _ in cells), samples - sum(b for _, b in cells)))
    chi_square = sum((a - b) ** 2 / (a + b) for a, b in cells if a + b)
    freedom = len(cells) - 1
    assert freedom >= 20
    return (chi_square - freedom) / (2 * freedom) ** 0.5


def make(
    make_engine: Any, models: dict[str, str], name: str | None, draft: str = "", **options: Any
) -> Any:
    """Return the engine of one of SPECS, or without speculation.

    ``draft`` is for another model than the method's usual one, ``options`` are the engine's.
    """
    arguments = {**ARGUMENTS, "model": models["target"], **options}
    if name is None:
        return make_engine(**arguments)
    spec = dict(SPECS[name])
    usual = {"hybrid": "eagle", "eagle3": "peagle" if "parallel_drafting" in spec else "eagle3"}
    draft = draft or usual.get(spec["method"], spec["method"])
    if draft in models:
        spec["model"] = models[draft]
    return make_engine(spec, **arguments)


@pytest.fixture(scope="module")
def expected(make_engine: Any, models: dict[str, str]) -> Counter[tuple[int, ...]]:
    return sample(make(make_engine, models, None))


# Drafts of one pass are made and sampled where DSpark's are, which then go on; those of a draft
# model where EAGLE's are.
BY_NIGHT = ("sampled, peagle", "sampled, dflash", "sampled, draft model")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.nightly if name in BY_NIGHT else ()) for name in SPECS],
)
def test_distribution_is_that_of_the_target(
    name: str, make_engine: Any, models: dict[str, str], expected: Counter[Any]
) -> None:
    llm = make(make_engine, models, name)
    with watch(llm) as seen:
        actual = sample(llm)
    assert excess(actual, expected) < SIGMAS
    check_some_are_accepted(seen)
    assert (len({num for step in seen.steps for num in step.drafts}) > 1) == (
        name in ("mixed", "ragged")
    )


def check_some_are_accepted(seen: Drafts, samples: int = SAMPLES) -> None:
    """Some drafts were accepted and some were not, or a comparison shows nothing."""
    accepted = seen.acceptance
    assert accepted.accepted_per_position[0] > samples / 20, accepted
    assert (accepted.rate or 1) < 0.95, accepted


@pytest.mark.nightly
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"enable_prefix_caching": False}, id="without prefix caching"),
        pytest.param({"enforce_eager": False}, id="compiled"),
        pytest.param({"tensor_parallel_size": 2}, id="two processes"),
        pytest.param({"draft": "short"}, id="a draft with a shorter context"),
    ],
)
def test_distribution_in_other_engines(
    options: dict[str, Any],
    make_engine: Any,
    models: dict[str, str],
    expected: Counter[Any],
    monkeypatch: Any,
) -> None:
    # Workers may run on any core; vLLM wants a NUMA node for each otherwise.
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    llm = make(make_engine, models, "sampled", **options)
    with watch(llm) as seen:
        assert excess(sample(llm), expected) < SIGMAS
    check_some_are_accepted(seen)


# Letters are all tokens but the end's. What the heads like is forbidden often.
GRAMMAR = "[a-g]([a-d][c-g]){9}"
# Grammars take their time.
SAMPLES_OF_A_GRAMMAR = 8_000


@pytest.fixture(scope="module")
def sample_under_a_grammar(make_engine: Any, models: dict[str, str]) -> Any:
    """Return what counts continuations under a grammar, with drafts of one of SPECS or none."""

    def run(name: str | None) -> tuple[Counter[tuple[int, ...]], Drafts]:
        llm = make(make_engine, models, name, skip_tokenizer_init=False)
        grammar = StructuredOutputsParams(regex=GRAMMAR)
        with watch(llm) as seen:
            return sample(llm, SAMPLES_OF_A_GRAMMAR, structured_outputs=grammar), seen

    return run


@pytest.fixture(scope="module")
def expected_under_a_grammar(sample_under_a_grammar: Any) -> Counter[tuple[int, ...]]:
    return sample_under_a_grammar(None)[0]


@pytest.mark.parametrize(
    "name",
    ["sampled", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("mixed", "ragged"))],
)
def test_distribution_under_a_grammar(
    name: str, sample_under_a_grammar: Any, expected_under_a_grammar: Counter[Any]
) -> None:
    """Drafts are cut off before the first that the grammar forbids, and rows are masked."""
    actual, seen = sample_under_a_grammar(name)
    assert excess(actual, expected_under_a_grammar) < SIGMAS
    check_some_are_accepted(seen, SAMPLES_OF_A_GRAMMAR)
    assert len({num for step in seen.steps for num in step.drafts}) > 1  # some were cut off


@pytest.mark.nightly
def test_sampled_drafts_under_a_grammar_would_be_noticed(
    sample_under_a_grammar: Any, expected_under_a_grammar: Counter[Any], monkeypatch: Any
) -> None:
    """Negative control: how many drafts are left depends on what was drawn."""
    monkeypatch.setattr(sampling, "requests_with_grammar", lambda runner: [])
    actual, _ = sample_under_a_grammar("sampled")
    assert excess(actual, expected_under_a_grammar) > 3 * SIGMAS


def test_wrong_draft_probabilities_would_be_noticed(
    make_engine: Any, models: dict[str, str], expected: Counter[Any], monkeypatch: Any
) -> None:
    """Negative control: the verifier is told that the drafts were drawn uniformly."""
    stock = DraftSampler.draw

    def wrong(self: Any, logits: torch.Tensor) -> Any:
        tokens, probs = stock(self, logits)
        return tokens, torch.full_like(probs, 1 / probs.shape[1])

    monkeypatch.setattr(DraftSampler, "draw", wrong)
    assert excess(sample(make(make_engine, models, "sampled")), expected) > 3 * SIGMAS


@pytest.mark.nightly
def test_drafts_of_suffix_trees_told_as_drawn_would_be_noticed(
    make_engine: Any, models: dict[str, str], expected: Counter[Any], monkeypatch: Any
) -> None:
    """Negative control: the verifier has the model's distributions for drafts that are one-hot."""
    monkeypatch.delattr(HybridMixin, "take_last_draft_probs")
    assert excess(sample(make(make_engine, models, "mixed")), expected) > 3 * SIGMAS


def test_probabilities_under_the_drafts_own_ids_would_be_noticed(
    make_engine: Any, models: dict[str, str], expected: Counter[Any], monkeypatch: Any
) -> None:
    """Negative control: those of a part of the vocabulary are not laid out over the whole of it."""
    stock = DraftSampler.draw

    def wrong(self: Any, logits: torch.Tensor) -> Any:
        tokens, probs = stock(self, logits)
        own = torch.zeros_like(probs)
        own[:, : len(KNOWN)] = probs[:, KNOWN]
        return tokens, own

    monkeypatch.setattr(DraftSampler, "draw", wrong)
    name = "sampled, of a part of the vocabulary"
    assert excess(sample(make(make_engine, models, name)), expected) > 3 * SIGMAS
