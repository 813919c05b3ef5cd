"""Gather the distributions that each request's drafts were sampled from."""

from __future__ import annotations

import torch
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from vllm_ascend_spec.ops.send import send_list


def gather_draft_probs(
    known: torch.Tensor | None,  # [num_known_reqs, num_steps, vocab_size]
    known_ids: list[str] | None,
    req_ids: list[str],
    spec: SpecDecodeMetadata,
) -> torch.Tensor | None:
    """Gather the distributions of the drafts that are verified in this step.

    Some drafts were not sampled: vLLM pads with -1, and fills in token 0 where it did not draft.
    The distribution of such a draft is one-hot. vLLM instead drops the distributions of the whole
    batch, which makes a request's tokens depend on the other requests in the batch.

    Args:
        known: float32, distributions of the last drafts made; None if those were one-hot.
        known_ids: the requests that they belong to.
        req_ids: the requests of this batch, in its order.
        spec: the drafts.

    Returns:
        float32 [num_drafts, vocab_size], or None if all drafts are one-hot.
    """
    if known is None or known_ids is None:
        return None
    num_steps, place = known.shape[1], {req_id: i for i, req_id in enumerate(known_ids)}
    rows: list[int] = []
    one_hot: list[int] = []
    for req_id, count in zip(req_ids, spec.num_draft_tokens, strict=False):
        first = place.get(req_id, -1) * num_steps
        for step in range(count):
            if first < 0 or step >= num_steps:
                one_hot.append(len(rows))
            rows.append(max(first, 0) + min(step, num_steps - 1))
    if not rows or len(one_hot) == len(rows):
        return None
    probs = known.flatten(0, 1)[send_list(rows, torch.int64, known.device)]
    if one_hot:
        index = send_list(one_hot, torch.int64, known.device)
        # The row of a draft of -1 is not read: that draft is always rejected.
        tokens = spec.draft_token_ids[index].long().clamp_(min=0)
        probs[index] = 0.0
        probs[index, tokens] = 1.0
    return probs
