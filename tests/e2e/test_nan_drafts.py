"""A draft checkpoint that computes NaN: nothing is accepted, and the text is the target's own."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.engines import assert_same, token_ids
from tests.verification.requests import BACKENDS
from tests.zoo import MODELS, SPECS
from vllm_ascend_spec.metrics.acceptance import from_engine
from vllm_ascend_spec.verification import sampler as sampler_module

RULES = ("token", "block")


@pytest.fixture(scope="module")
def broken_head(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the zoo's EAGLE head with one NaN among its weights."""
    folder = shutil.copytree(MODELS / "eagle", tmp_path_factory.mktemp("broken") / "eagle")
    weights = load_file(folder / "model.safetensors")
    weights["fc.weight"][3, 5] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


@pytest.fixture(scope="module")
def with_nan(make_engine: Any, broken_head: str) -> Any:
    """Return ``make(rule, backend)``, an engine whose sampled drafts are NaN."""

    def make(rule: str, backend: str) -> Any:
        spec = {**SPECS["eagle"], "model": broken_head, "draft_sample_method": "probabilistic"}
        ours = {"verify_rule": rule, "verify_backend": backend}
        return make_engine(spec, additional_config={"ascend_spec": ours})

    return make


class SamplesOfTheTarget:
    """Checks that each call of the op gives what it gives without drafts: samples of the target."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stock = sampler_module.verify_sample
        self.requests = 0
        monkeypatch.setattr(sampler_module, "verify_sample", self)

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        logits, drafts, *rest = args
        result = self.stock(*args, **kwargs)
        if drafts.shape[0]:
            assert bool(kwargs["draft_probs"].isnan().all())
            assert 0 <= int(drafts.min()) <= int(drafts.max()) < logits.shape[1]
            without = self.stock(
                logits, torch.full_like(drafts, -1), *rest, **{**kwargs, "draft_probs": None}
            )
            assert torch.equal(result[0], without[0])
            assert torch.equal(result[1], without[1])
            self.requests += result[1].shape[0]
        return result


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rule", RULES)
def test_every_token_is_a_sample_of_the_target(
    rule: str,
    backend: str,
    with_nan: Any,
    generate: Any,
    prompts: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    llm = with_nan(rule, backend)
    calls = SamplesOfTheTarget(monkeypatch)
    before = from_engine(llm.get_metrics())
    sampled = {"temperature": 0.8, "max_tokens": 32}
    generate(llm, prompts[:8], **sampled)
    acceptance = from_engine(llm.get_metrics()) - before
    assert calls.requests >= 8 * 30
    assert acceptance.num_draft_tokens > 8 * 30 * 2
    assert acceptance.num_accepted_tokens == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_text_of_a_seed_is_that_without_speculation(
    backend: str, with_nan: Any, expect: Any, generate: Any, prompts: list[str]
) -> None:
    sampled = {"temperature": 0.8, "seed": 7, "max_tokens": 32}
    expected = token_ids(expect(prompts[:8], **sampled))
    llm = with_nan(RULES[0], backend)
    assert_same(token_ids(generate(llm, prompts[:8], **sampled)), expected)


@pytest.mark.parametrize("rule", RULES)
def test_greedy_text_is_that_without_speculation(
    rule: str, with_nan: Any, expect: Any, generate: Any, prompts: list[str]
) -> None:
    expected = token_ids(expect(prompts[:8]))
    assert_same(token_ids(generate(with_nan(rule, "reference"), prompts[:8])), expected)
