"""Steps in which no request has a draft."""

from __future__ import annotations

import torch
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata


def no_draft_metadata(
    sampling: SamplingMetadata,
    num_reqs: int,
    logits: torch.Tensor,  # [num_reqs, vocab_size]
    *,
    has_seeds: bool,
) -> SpecDecodeMetadata | None:
    """Return metadata that sends such a step through the verifier, or None if none needs it.

    Two kinds of requests need the verifier here; for all others vLLM's sampler gives the same
    result faster. The verifier has the noise of requests with a seed. And it enforces thinking
    budgets (thinking.py).

    Args:
        sampling: the requests' parameters.
        num_reqs: number of requests.
        logits: the target's logits, one row per request; rows may follow that are padding.
        has_seeds: whether a request that samples has a seed.
    """
    holder = sampling.thinking_budget_state_holder
    has_budgets = holder is not None and holder.has_tracked_requests()
    if not has_budgets and not has_seeds:
        return None
    device = logits.device
    none = torch.zeros(0, dtype=torch.int32, device=device)
    rows = torch.arange(num_reqs, dtype=torch.int32, device=device)
    return SpecDecodeMetadata(
        draft_token_ids=none,
        num_draft_tokens=[0] * num_reqs,
        cu_num_draft_tokens=torch.zeros(num_reqs, dtype=torch.int32, device=device),
        cu_num_sampled_tokens=rows + 1,
        target_logits_indices=none,
        bonus_logits_indices=rows,
        logits_indices=rows,
    )
