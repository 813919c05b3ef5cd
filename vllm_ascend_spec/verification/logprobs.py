"""Gather logprobs of the tokens that a verification returned."""

from __future__ import annotations

import torch
from vllm.v1.outputs import LogprobsTensors
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p
from vllm.v1.sample.sampler import Sampler
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from vllm_ascend_spec.ops.layout import make_grid
from vllm_ascend_spec.verification.processors import mask_min_p
from vllm_ascend_spec.verification.rows import ProcessedLogits
from vllm_ascend_spec.verification.trees import trees_of


def gather_logprobs(
    sampler: Sampler,
    mode: str,
    metadata: SpecDecodeMetadata,
    logits: torch.Tensor,  # [num_rows, vocab_size]
    constrained: ProcessedLogits,
    tokens: torch.Tensor,  # [num_reqs, max_draft_len + 1]
    sampling: SamplingMetadata,
) -> LogprobsTensors | None:
    """Gather what vLLM's runner expects: one entry per cell of ``tokens``, padding included.

    Args:
        sampler: vLLM's sampler, which gathers and ranks.
        mode: ``raw_logprobs``, ``raw_logits``, ``processed_logprobs`` or ``processed_logits``.
        metadata: the drafts.
        logits: the target's logits.
        constrained: these logits after everything that is not part of the op.
        tokens: the output, -1 where padded; the runner drops those cells.
        sampling: the requests' parameters.

    Returns:
        Logprobs with num_reqs · (max_draft_len + 1) rows, or None if no request wants any.
    """
    if sampling.max_num_logprobs is None and not sampling.logprob_token_ids:
        return None
    is_processed = mode.startswith("processed")
    values = _processed(sampler, constrained, metadata, sampling) if is_processed else logits
    grid = make_grid(metadata.draft_token_ids, metadata.cu_num_draft_tokens, metadata.max_spec_len)
    rows = grid.rows
    if (trees := trees_of(metadata)) is not None:
        assert trees.output_rows is not None
        rows = rows[:, :1] + trees.output_rows.clamp(min=0)
    cells = values[rows.flatten()].float()
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
    sampler: Sampler,
    constrained: ProcessedLogits,
    metadata: SpecDecodeMetadata,
    sampling: SamplingMetadata,
) -> torch.Tensor:
    """Return the logits from which tokens were sampled, as vLLM's sampler reports them."""
    logits = constrained.logits.float()
    if sampling.all_greedy or constrained.temperature is None:
        return logits
    ends = metadata.cu_num_draft_tokens
    counts = ends.diff(prepend=ends.new_zeros(1)) + 1
    request = torch.repeat_interleave(counts, output_size=logits.shape[0])
    temperature = constrained.temperature[request]
    values = logits / torch.where(temperature > 0, temperature, 1.0)[:, None]
    values = mask_min_p(values, None if constrained.min_p is None else constrained.min_p[request])
    top_k = None if sampling.top_k is None else sampling.top_k[request]
    top_p = None if sampling.top_p is None else sampling.top_p[request]
    # The sampler of a device may have its own function.
    apply = getattr(sampler.topk_topp_sampler, "apply_top_k_top_p", apply_top_k_top_p)
    return apply(values, top_k, top_p)
