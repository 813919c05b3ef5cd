"""The peer "vllm" of ``benchmarks verify``: vLLM's rejection sampler, as its V1 runner calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.benchmarks.verify.cases import VerifyBatch

NOTE = "vLLM's RejectionSampler and Sampler"


def prepare(device: torch.device) -> str:
    """Make the peer usable on ``device``; return what was done, for the record."""
    if device.type != "cpu":
        return f"{NOTE} as released."
    from vllm_ascend_spec.patches import registry

    registry.apply("cpu")
    patches = ", ".join(patch.__name__.rpartition(".")[2] for patch in registry.needed("cpu"))
    return f"{NOTE}. As released they fail on a CPU at the first verification; patched: {patches}."


def make_call(batch: VerifyBatch) -> Callable[[], torch.Tensor]:
    """Build what the runner has ready before it samples; only the sampler's call is timed.

    Returns:
        A call that returns tokens, int32 [num_reqs, num_drafts + 1], padded with -1.
    """
    from vllm.v1.sample.rejection_sampler import RejectionSampler
    from vllm.v1.sample.sampler import Sampler
    from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

    num_reqs, device = len(batch.temperature), batch.logits.device
    drafts = batch.draft_token_ids.view(num_reqs, batch.num_drafts).tolist()
    sampling = _sampling(batch, drafts)
    if batch.num_drafts == 0:
        # It changes them in place: by what does nothing where the temperature is 1.
        logits, sample = batch.logits.clone(), Sampler()
        return lambda: sample(logits, sampling).sampled_token_ids
    rows = torch.arange(len(batch.logits), dtype=torch.int32, device=device)
    by_request = rows.view(num_reqs, batch.num_drafts + 1)
    spec = SpecDecodeMetadata.make_dummy(drafts, device)
    spec.logits_indices = rows
    spec.target_logits_indices = by_request[:, :-1].flatten()
    spec.bonus_logits_indices = by_request[:, -1].contiguous()
    sampler = RejectionSampler(Sampler())

    def call() -> torch.Tensor:
        return sampler(spec, batch.draft_probs, batch.logits, sampling).sampled_token_ids

    return call


def _sampling(batch: VerifyBatch, drafts: list[list[int]]) -> Any:
    from vllm.v1.sample.logits_processor import LogitsProcessors
    from vllm.v1.sample.metadata import SamplingMetadata

    greedy = not bool(batch.temperature.any())
    neutral = torch.zeros_like(batch.temperature)
    return SamplingMetadata(
        temperature=None if greedy else batch.temperature,
        all_greedy=greedy,
        all_random=not greedy,
        top_p=batch.top_p,
        top_k=batch.top_k,
        generators={},
        max_num_logprobs=None,
        no_penalties=True,
        prompt_token_ids=None,
        frequency_penalties=neutral,
        presence_penalties=neutral,
        repetition_penalties=neutral,
        output_token_ids=[[] for _ in drafts],
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=LogitsProcessors(),
        logprob_token_ids=None,
        spec_token_ids=drafts,
    )
