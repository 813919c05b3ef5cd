"""When our draft loop is used, and which engines hand the drafts' distributions over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer

from tests.methods.engine import make_engine
from tests.methods.sampling import make_noise, make_sampling
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.methods.loops.sampling import DraftSampler
from vllm_ascend_spec.methods.loops.vllm.loop import VllmDraftLoop
from vllm_ascend_spec.methods.loops.vllm.module_steps import ModuleSteps

VOCAB = 6


class Stock:
    """The part of vLLM's proposer that ``create`` reads; its own choice as in vLLM 0.30."""

    parallel_drafting = False
    use_heterogeneous_vocab = False
    net_num_new_slots_per_request = 0

    def __init__(self, vllm_config: Any, device: Any, runner: Any) -> None:
        self.made_with = (vllm_config, device, runner)
        self.vllm_config = vllm_config
        self.speculative_config = spec = vllm_config.speculative_config
        self._enable_probabilistic_draft_probs = (
            spec.rejection_sample_method == "standard"
            and spec.draft_sample_method == "probabilistic"
        )


class Proposer(VllmDraftLoop, Stock):
    """Both, in the order that the docstring asks for."""

    def _greedy_sample(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return hidden_states.argmax(dim=-1)


def config(method: str, drafts: str) -> Any:
    return SimpleNamespace(
        speculative_config=SimpleNamespace(
            rejection_sample_method=method,
            draft_sample_method=drafts,
            method="eagle",
            max_model_len=None,
            draft_model_config=SimpleNamespace(max_model_len=64),
        ),
        model_config=SimpleNamespace(max_model_len=64),
        parallel_config=SimpleNamespace(data_parallel_size=1, enable_eplb=False),
    )


def create(method: str, drafts: str, loop: str = "auto") -> Any:
    rule = "token" if method == "standard" else method
    asked = {"rule": rule, "draft_sample_method": drafts, "draft_loop": loop}
    return Proposer.create(make_engine(config(method, drafts), "runner", **asked))


@pytest.mark.parametrize("loop", ["auto", "ours", "stock"])
@pytest.mark.parametrize(
    ("method", "drafts", "expected"),
    [
        ("standard", "greedy", False),
        ("standard", "probabilistic", True),
        ("block", "greedy", False),
        ("block", "probabilistic", True),
        ("synthetic", "greedy", False),
        ("synthetic", "probabilistic", False),
    ],
)
def test_distributions_are_handed_over_wherever_they_are_used(
    method: str, drafts: str, expected: bool, loop: str
) -> None:
    assert create(method, drafts, loop)._enable_probabilistic_draft_probs is expected


def test_vllm_alone_does_not_hand_them_over_with_the_block_rule() -> None:
    """When this fails, vLLM does, and ours can leave it to vLLM."""
    stock = Stock(config("block", "probabilistic"), None, None)
    assert stock._enable_probabilistic_draft_probs is False
    source = SpecDecodeBaseProposer.__init__.__code__
    assert "_enable_probabilistic_draft_probs" in source.co_names
    assert "standard" in source.co_consts


@pytest.mark.parametrize("method", ["standard", "block"])
@pytest.mark.parametrize("all_greedy", [False, True])
def test_sampled_drafts_come_with_their_distribution(method: str, all_greedy: bool) -> None:
    proposer = create(method, "probabilistic")
    proposer.steps = ModuleSteps(proposer)
    proposer.model = SimpleNamespace(compute_logits=lambda hidden: hidden)
    hidden = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(0))
    sampling = make_sampling([0.0] * 3 if all_greedy else [1.0, 0.0, 0.5])
    proposer.runner = make_runner(None)
    sampler = proposer.sampler_of(sampling)
    tokens, probs = proposer.pick(hidden, sampler)
    assert tokens.shape == (3,)
    if all_greedy:
        assert probs is None
    else:
        torch.testing.assert_close(probs[2], (hidden[2] / 0.5).softmax(-1))


def make_runner(noise: Any) -> Any:
    batch = SimpleNamespace(req_ids=[])
    return SimpleNamespace(requests={}, input_batch=batch, noise_of_drafts=noise)


@pytest.mark.parametrize("unseeded", [None, [False, False, True]])
def test_drafts_with_a_seed_are_sampled_alike_one_by_one_and_all_at_once(
    unseeded: list[bool] | None,
) -> None:
    """With the noise that the runner has; and no distribution where nobody needs one."""
    proposer = create("standard", "probabilistic")
    proposer.steps = ModuleSteps(proposer)
    proposer.model = SimpleNamespace(compute_logits=lambda hidden: hidden)
    hidden = torch.randn(3, 40, VOCAB, generator=torch.Generator().manual_seed(0))
    sampling = make_sampling([1.0, 0.0, 0.5])
    noise = make_noise([5, 0, 6], [9, 4, 2], unseeded)
    proposer.runner = make_runner(noise)
    together = proposer.pick_all(hidden, proposer.sampler_of(sampling))
    laws = proposer._last_draft_probs
    sampler = proposer.sampler_of(sampling)
    picked = [proposer.pick(hidden[:, place], sampler) for place in range(40)]
    one_by_one = proposer.join(picked)
    assert together.shape == (3, 40)
    assert together[0].tolist() == one_by_one[0].tolist()
    assert together[0].tolist() != hidden[0].argmax(-1).tolist()
    assert together[1].tolist() == hidden[1].argmax(-1).tolist()
    # The noise goes on from draft to draft, and is not of the step's first position alone.
    alone = DraftSampler(make_sampling([1.0]), make_noise([5], [9 + 7]))
    assert together[0, 7] == proposer.pick(hidden[:1, 7], alone)[0]
    for probs in (laws, proposer._last_draft_probs):
        assert (probs is None) == (unseeded is None)
        if probs is not None:
            torch.testing.assert_close(probs[2], (hidden[2] / 0.5).softmax(-1))


def test_a_step_leaves_no_distributions_of_the_one_before() -> None:
    proposer = create("standard", "probabilistic")
    proposer.steps = ModuleSteps(proposer)
    proposer.model = SimpleNamespace(compute_logits=lambda hidden: hidden)
    hidden, sampling = torch.randn(1, 2, VOCAB), make_sampling([1.0])
    proposer.runner = make_runner(None)
    proposer.pick_all(hidden, proposer.sampler_of(sampling))
    proposer.runner = make_runner(make_noise([5], [9]))
    proposer.pick_all(hidden, proposer.sampler_of(sampling))
    assert proposer._last_draft_probs is None


def test_a_window_is_refused_where_vllms_loop_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"draft_loop": "auto", "draft_window": 32}
    engine = make_engine(config("standard", "greedy"), "runner", **asked)
    assert Proposer.create(engine).window.size == 32
    monkeypatch.setattr(Stock, "use_heterogeneous_vocab", True)
    with pytest.raises(
        ConfigError, match="draft_window=32: not possible with use_heterogeneous_vocab"
    ):
        Proposer.create(engine)


def test_the_loop_that_cannot_be_used_is_refused() -> None:
    stock = Proposer.use_heterogeneous_vocab
    try:
        Proposer.use_heterogeneous_vocab = True
        assert create("block", "probabilistic", "auto").uses_own_loop is False
        with pytest.raises(ConfigError, match="use_heterogeneous_vocab"):
            create("block", "probabilistic", "ours")
    finally:
        Proposer.use_heterogeneous_vocab = stock
