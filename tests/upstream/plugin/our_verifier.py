"""A pytest plugin: vLLM's tests of its rejection sampler and of the context's end meet our parts.

Loaded into a run of vLLM's tests (see ../test_vllm_tests.py), where ``tests`` is vLLM's folder, so
nothing of ours but the package can be imported here.

- A test that makes a ``RejectionSampler`` is given our verifier under that name. Such tests say by
  a mock what vLLM's sampler draws for the bonus row, whose logits they do not give.
- A test that starts an engine has our proposer and verifier in it anyway, because our platform is
  active. Its models come from a hub; those of tests/models take their places.
- vLLM's list of attention backends to try knows no CPU; it is given the CPU's.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import outcomes
import pytest
import torch

from vllm_ascend_spec.ops.row_noise import RowNoise

MODELS = Path(__file__).resolve().parents[2] / "models"
STAND_INS = {
    "facebook/opt-125m": str(MODELS / "target"),
    "meta-llama/Meta-Llama-3-8B-Instruct": str(MODELS / "target"),
    "yuhuili/EAGLE-LLaMA3-Instruct-8B": str(MODELS / "eagle"),
}
# No request of theirs has more. They do not say how many an engine would be told to make.
MOST_DRAFTS = 5
# By test id: how often our verifier ran, and the parts of ours that an engine had.
verified: Counter[str] = Counter()
parts: dict[str, list[str]] = {}
outcomes.notes |= {"verified": verified, "parts": parts}
running = SimpleNamespace(test="")


def pytest_collection() -> None:
    """Before vLLM's test modules are imported, and after its conftest was."""
    import tests.utils

    import tests.conftest
    from vllm_ascend_spec.patches import registry
    from vllm_ascend_spec.verification.sampler import SpecVerifier

    registry.apply("cpu")
    tests.utils.get_attn_backend_list_based_on_platform = lambda: ["CPU_ATTN"]
    tests.conftest.VllmRunner = runner_on_the_zoo(tests.conftest.VllmRunner)
    forward = SpecVerifier.forward

    def counting(self: Any, metadata: Any, *arguments: Any, **named: Any) -> Any:
        verified[running.test] += 1
        return forward(self, metadata, *arguments, **named)

    SpecVerifier.forward = counting  # type: ignore[method-assign]


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Put the verifier in, where a test module has the name of what it stands in for.

    Its tests start nothing that vLLM's conftest would have to clean up after each, at a second.
    """
    from vllm.v1.sample.rejection_sampler import RejectionSampler

    ours = verifier_class()
    for item in items:
        if vars(item.module).get("RejectionSampler") is RejectionSampler:
            item.module.RejectionSampler = ours
        if vars(item.module).get("RejectionSampler") is ours:
            item.add_marker("skip_global_cleanup")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: Any) -> None:
    """Note which test runs."""
    running.test = item.nodeid


def runner_on_the_zoo(stock: type) -> type:
    """Return vLLM's ``VllmRunner`` for the models that stand in."""

    class Runner(stock):  # type: ignore[misc]
        def __init__(self, model_name: str, *, speculative_config: Any, **named: Any) -> None:
            if model := speculative_config.get("model"):
                speculative_config = {**speculative_config, "model": STAND_INS[model]}
            # As much cache as three requests need, not the share of all memory that a server takes;
            # and K drafts in each step, whether they pay or not.
            fixed = {"ascend_spec": {"draft_length": "fixed"}}
            named |= {"kv_cache_memory_bytes": 128 << 20, "additional_config": fixed}
            super().__init__(STAND_INS[model_name], speculative_config=speculative_config, **named)
            worker = self.llm.llm_engine.model_executor.driver_worker.worker
            runner = worker.model_runner
            swapped = (runner.drafter, runner.rejection_sampler)
            parts[running.test] = [type(part).__name__ for part in swapped]

    return Runner


def verifier_class() -> type:
    """Return a class that is made and called as ``RejectionSampler``, around our verifier."""
    from vllm.v1.outputs import SamplerOutput
    from vllm.v1.sample.sampler import Sampler

    from vllm_ascend_spec.config.resolved import SpecConfig
    from vllm_ascend_spec.verification.sampler import SpecVerifier

    class VerifierAsRejectionSampler(torch.nn.Module):
        def __init__(self, sampler: Any, spec_config: Any = None, device: Any = None) -> None:
            super().__init__()
            self.sampler = sampler  # a mock, which knows the bonus tokens
            drafting = SimpleNamespace(
                num_speculative_tokens=MOST_DRAFTS,
                rejection_sample_method=getattr(spec_config, "rejection_sample_method", "standard"),
                synthetic_acceptance_rates=getattr(spec_config, "synthetic_acceptance_rates", None),
            )
            model = SimpleNamespace(logprobs_mode=sampler.logprobs_mode)
            config: Any = SimpleNamespace(speculative_config=drafting, model_config=model)
            speculation = SpecConfig(
                device="cpu",
                family="vllm",
                method="eagle",
                vllm_method="eagle",
                drafter=(),
                max_k=MOST_DRAFTS,
            )
            self.verifier = SpecVerifier(Sampler(), config, speculation)

        def forward(
            self,
            metadata: Any,
            draft_probs: torch.Tensor | None,  # [num_drafts, vocab_size]
            logits: torch.Tensor,  # [num_drafts, vocab_size]
            sampling_metadata: Any,
        ) -> Any:
            rows = with_bonus_rows(metadata, logits)
            self.verifier.noise = noise_of(sampling_metadata, len(metadata.num_draft_tokens))
            tokens = self.verifier(metadata, draft_probs, rows, sampling_metadata).sampled_token_ids
            counts = torch.tensor(metadata.num_draft_tokens)[:, None]
            bonus = self.sampler(logits, sampling_metadata).sampled_token_ids.view(-1, 1)
            got_all = (tokens >= 0).sum(1, keepdim=True) == counts + 1
            mocked = tokens.scatter(1, counts, bonus.to(tokens.dtype))
            return SamplerOutput(torch.where(got_all, mocked, tokens), logprobs_tensors=None)

    return VerifierAsRejectionSampler


def noise_of(sampling: Any, num_reqs: int) -> RowNoise | None:
    """Return what our runner tells the verifier of the seeds; all texts begin with these tokens."""
    seeds = torch.zeros(num_reqs, dtype=torch.int64)
    unseeded = torch.ones(num_reqs, dtype=torch.bool)
    for index, generator in sampling.generators.items():
        seeds[index], unseeded[index] = generator.initial_seed(), False
    positions = torch.zeros_like(seeds)
    return RowNoise(seeds, positions, unseeded) if sampling.generators else None


def with_bonus_rows(
    metadata: Any,
    logits: torch.Tensor,  # [num_drafts, vocab_size]
) -> torch.Tensor:
    """Return logits [num_drafts + num_reqs, vocab_size] with a row of zeros after each request."""
    counts = torch.tensor(metadata.num_draft_tokens)
    request = torch.arange(len(counts)).repeat_interleave(counts)
    rows = logits.new_zeros(len(request) + len(counts), logits.shape[1])
    rows[torch.arange(len(request)) + request] = logits[metadata.target_logits_indices]
    return rows
