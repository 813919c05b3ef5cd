"""The CPU's runner: our mixins over vLLM's own ``_sample``, and when kernels are patched."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm import SamplingParams
from vllm.v1.worker.cpu_model_runner import CPUModelRunner

from tests.marks import requires_cpu_build
from tests.patches.cases import is_applied, taking_out
from tests.verification.requests import (
    VOCAB,
    Request,
    budget_holder,
    make_verifier,
    noise_of,
    sampling_metadata,
    spec_metadata,
    verify_draftless,
)
from vllm_ascend_spec.patches import registry
from vllm_ascend_spec.worker.cpu import SpecCPUModelRunner

pytestmark = requires_cpu_build


def make_runner(requests: list[Request]) -> Any:
    """Return a runner that has just enough to sample; every sampled request has a seed."""
    generators = {
        i: torch.Generator().manual_seed(i) for i, r in enumerate(requests) if not r.is_greedy
    }
    ids = [str(i) for i in range(len(requests))]
    lengths = [len(r.prompt) + len(r.output) + len(r.drafts) for r in requests]
    verifier = make_verifier()
    runner = object.__new__(SpecCPUModelRunner)
    vars(runner).update(
        input_batch=SimpleNamespace(
            num_reqs=len(requests),
            req_ids=ids,
            random_reqs={ids[index] for index in generators},
            generators=generators,
            sampling_metadata=sampling_metadata(requests, generators=generators),
            update_async_output_token_ids=lambda: None,
        ),
        seq_lens=torch.tensor(lengths, dtype=torch.int32),
        device=torch.device("cpu"),
        use_async_scheduling=False,
        # As after a step with drafts; none of them belongs to this one.
        _draft_probs=torch.zeros(len(requests), 2, VOCAB),
        _draft_prob_req_ids=["0"],
        sampler=verifier.sampler,
        rejection_sampler=verifier,
    )
    return runner


def make_requests() -> list[Request]:
    params = SamplingParams(temperature=1.0)
    return [Request(params, prompt=[1], output=[2]) for _ in range(3)]


LOGITS = torch.zeros(3, VOCAB)


def test_seeded_step_without_drafts_goes_through_the_verifier() -> None:
    requests = make_requests()
    runner = make_runner(requests)
    for later in range(3):
        found = runner._sample(LOGITS, None).sampled_token_ids
        noise = noise_of(requests, {0: 0, 1: 1, 2: 2}, later)
        assert found.shape == (3, 1)
        assert torch.equal(found, verify_draftless(requests, LOGITS, noise).sampled_token_ids)
        runner.seq_lens += 1


def test_seeded_step_with_drafts_goes_through_the_verifier() -> None:
    requests = make_requests()
    requests[1].drafts = [4, 5]
    runner = make_runner(requests)
    runner._draft_probs = None
    output = runner._sample(torch.zeros(5, VOCAB), spec_metadata(requests)).sampled_token_ids
    assert output.shape == (3, 3)
    noise = noise_of(requests, {0: 0, 1: 1, 2: 2})
    draftless = verify_draftless(make_requests(), LOGITS, noise).sampled_token_ids
    assert torch.equal(output[:, :1], draftless)


def test_thinking_budget_of_a_step_without_drafts_is_that_without_speculation() -> None:
    # In a step without drafts vLLM's holder, told that there is speculation, counts no row for a
    # request: what it forces on the last one here lands on the first.
    plain, thinking = (SamplingParams(temperature=0, thinking_token_budget=b) for b in (None, 2))
    requests = [Request(plain, [1], [2]), Request(thinking, [1, 9], [2, 3])]
    logits = torch.randn(2, VOCAB, generator=torch.Generator().manual_seed(0))
    logits[:, 10] = -20.0
    expected = sampling_metadata(requests)
    expected.thinking_budget_state_holder = budget_holder(requests, 0)
    runner = make_runner(requests)
    runner.input_batch.sampling_metadata.thinking_budget_state_holder = budget_holder(requests, 3)
    found = runner._sample(logits.clone(), None).sampled_token_ids
    assert found.tolist() == runner.sampler(logits.clone(), expected).sampled_token_ids.tolist()


def test_kernels_are_patched_whatever_methods_the_stock_runner_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """vLLM 0.30 plugs its C++ kernels in by a method of the runner that 0.31 does not have."""
    patches = list(registry.needed("cpu"))
    applied: list[bool] = []
    monkeypatch.delattr(CPUModelRunner, "_postprocess_triton")

    def init(runner: Any, *_: Any) -> None:
        applied.extend(map(is_applied, patches))
        runner.sampler, runner.vllm_config = None, config

    monkeypatch.setattr(CPUModelRunner, "__init__", init)
    model = SimpleNamespace(logprobs_mode="raw_logprobs")
    config: Any = SimpleNamespace(speculative_config=None, model_config=model)
    with taking_out() as take_out:
        for patch in patches:
            take_out(patch)
        SpecCPUModelRunner(config, torch.device("cpu"))
    assert len(patches) > 1
    assert applied == [True] * len(patches)
