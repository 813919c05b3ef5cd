"""Logprobs of the tokens that a verification put out."""

from __future__ import annotations

import torch
from vllm.v1.outputs import LogprobsTensors
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p
from vllm.v1.sample.sampler import Sampler
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from vllm_ascend_spec.ops.layout import make_grid
from vllm_ascend_spec.verification.rows import min_p_of


def gather_logprobs(
    sampler: Sampler,
    mode: str,
    metadata: SpecDecodeMetadata,
    logits: torch.Tensor,  # [num_rows, vocab_size]
    constrained: torch.Tensor,  # [num_rows, vocab_size]
    temperature: torch.Tensor | None,  # [num_reqs]
    tokens: torch.Tensor,  # [num_reqs, max_draft_len + 1]
    sampling: SamplingMetadata,
) -> LogprobsTensors | None:
    """Gather what vLLM's runner expects: one entry per cell of ``tokens``, padding included.

    Args:
        sampler: vLLM's sampler, which gathers and ranks.
        mode: ``raw_logprobs``, ``raw_logits``, ``processed_logprobs`` or ``processed_logits``.
        metadata: the drafts.
        logits: the target's logits.
        constrained: the same after everything that changes logits.
        temperature: what is left to divide ``constrained`` by; None if all requests are greedy.
        tokens: the output, -1 where padded; the runner drops those cells.
        sampling: the requests' parameters.

    Returns:
        Logprobs with num_reqs · (max_draft_len + 1) rows, or None if no request wants any.
    """
    if sampling.max_num_logprobs is None and not sampling.logprob_token_ids:
        return None
    values = logits.float()
    if mode.startswith("processed"):
        values = _processed(constrained, temperature, metadata, sampling)
    grid = make_grid(metadata.draft_token_ids, metadata.cu_num_draft_tokens, metadata.max_spec_len)
    cells = values[grid.rows.flatten()]
    if mode.endswith("logprobs"):
        cells = sampler.compute_logprobs(cells)
    chosen = tokens.flatten().clamp(min=0).long()
    if sampling.logprob_token_ids:
        width = tokens.shape[1]
        wanted = {
            request * width + column: ids
            for request, ids in sampling.logprob_token_ids.items()
            for column in range(width)
        }
        return sampler.gather_specific_token_logprobs(cells, wanted, chosen)
    assert sampling.max_num_logprobs is not None
    return sampler.gather_logprobs(cells, sampling.max_num_logprobs, chosen)


def _processed(
    constrained: torch.Tensor,  # [num_rows, vocab_size]
    temperature: torch.Tensor | None,  # [num_reqs]
    metadata: SpecDecodeMetadata,
    sampling: SamplingMetadata,
) -> torch.Tensor:
    """Return the logits that sampled requests were drawn from, as vLLM's sampler shows them."""
    if sampling.all_greedy or temperature is None:
        return constrained.float()
    counts = torch.tensor(metadata.num_draft_tokens, device=constrained.device) + 1
    request = torch.repeat_interleave(counts)
    per_row = temperature[request]
    values = constrained.float() / torch.where(per_row > 0, per_row, 1.0)[:, None]
    min_p = min_p_of(sampling)
    if min_p is not None:
        probs = values.softmax(-1)
        floor = probs.amax(-1, keepdim=True) * min_p[request][:, None]
        values = values.masked_fill(probs < floor, float("-inf"))
    top_k = None if sampling.top_k is None else sampling.top_k[request]
    top_p = None if sampling.top_p is None else sampling.top_p[request]
    return apply_top_k_top_p(values, top_k, top_p)
