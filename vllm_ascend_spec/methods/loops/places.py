"""Which token of its request a row is, where M-RoPE positions do not say it.

M-RoPE (2409.12191) gives the tokens of an image positions in time, height and width: [3,
num_tokens] instead of [num_tokens]. An image takes fewer positions than tokens, so the position of
a token after it is less than its place in the request. KV cache slots go by the place. vLLM and
vllm-ascend compute the slots of draft steps 2 to K, and of draft models, from the position instead
(``SpecDecodeBaseProposer`` and ``AscendSpecDecodeBaseProposer`` in
vllm/v1/spec_decode/llm_base_proposer.py and vllm_ascend/spec_decode/llm_base_proposer.py): after an
image, drafts overwrite keys of their own request and miss others.
"""

from __future__ import annotations

from typing import Any

import torch


def places_of(
    metadata: Any,
    positions: torch.Tensor,  # [3, num_tokens]
) -> torch.Tensor:
    """Return the place of each token in its request, [num_tokens] of the dtype of ``positions``.

    Args:
        metadata: vLLM's ``CommonAttentionMetadata`` of these tokens.
        positions: their M-RoPE positions.
    """
    starts = metadata.query_start_loc
    num_reqs, num_tokens = starts.shape[0] - 1, positions.shape[-1]
    # Of the first token of each request, counted from the first row of the batch.
    shifts = metadata.seq_lens[:num_reqs] - starts[1:]
    rows = torch.arange(num_tokens, device=positions.device)
    # A row of padding after the last request belongs to it.
    owners = torch.searchsorted(starts[1:], rows, right=True).clamp_(max=num_reqs - 1)
    return (rows + shifts[owners]).to(positions.dtype)
