"""Attention along paths in plain PyTorch, one request after the other, with dense masks."""

from __future__ import annotations

import torch

__all__ = ["tree_attention"]


def tree_attention(
    query: torch.Tensor,  # [num_tokens, num_heads, head_size]
    key_cache: torch.Tensor,  # [num_blocks, block_size, num_kv_heads, head_size]
    value_cache: torch.Tensor,  # [num_blocks, block_size, num_kv_heads, head_size]
    output: torch.Tensor,  # [num_tokens, num_heads, head_size]
    seen: torch.Tensor,  # [num_tokens]
    query_start_loc: torch.Tensor,  # [num_reqs + 1]
    seq_lens: torch.Tensor,  # [num_reqs]
    block_table: torch.Tensor,  # [num_reqs, max_blocks]
    *,
    scale: float,
    soft_cap: float = 0.0,
    window: int = 0,
    sinks: torch.Tensor | None = None,  # [num_heads]
    is_batch_invariant: bool = False,
) -> None:
    """See :func:`vllm_ascend_spec.ops.tree_attention.tree_attention`."""
    starts = query_start_loc.tolist()
    for request, seq_len in enumerate(seq_lens.tolist()):
        rows = slice(starts[request], starts[request + 1])
        if rows.start == rows.stop:
            continue
        own = [cache[block_table[request].long()] for cache in (key_cache, value_cache)]
        keys, values = (pages.flatten(0, 1)[:seq_len].float() for pages in own)
        group = query.shape[1] // keys.shape[1]
        keys, values = (x.repeat_interleave(group, dim=1) for x in (keys, values))
        scores = torch.einsum("rhd,khd->hrk", query[rows].float(), keys) * scale
        if soft_cap:
            scores = soft_cap * torch.tanh(scores / soft_cap)
        is_seen = mask_of(seen[rows], seq_len, window)
        scores = scores.masked_fill(~is_seen, float("-inf"))
        if sinks is not None:
            ends = sinks.float()[:, None, None].expand(-1, scores.shape[1], 1)
            scores = torch.cat([scores, ends], dim=-1)
        # A dummy run has rows without a token.
        is_empty = ~is_seen.any(dim=1, keepdim=True)
        weights = scores.softmax(dim=-1)[..., :seq_len].masked_fill(is_empty, 0.0)
        output[rows] = torch.einsum("hrk,khd->rhd", weights, values).to(output.dtype)


def mask_of(
    seen: torch.Tensor,  # [num_rows]
    seq_len: int,
    window: int = 0,
) -> torch.Tensor:
    """Return which tokens of a request its rows see, bool [num_rows, seq_len]."""
    num_rows = seen.shape[0]
    keys = torch.arange(seq_len, device=seen.device)
    places = torch.arange(seq_len - num_rows, seq_len, device=seen.device)[:, None]
    before_end = seq_len - 1 - keys
    bits = (seen[:, None] >> before_end.clamp(max=63)) & 1
    is_seen = (keys <= places) & ((before_end > 63) | (bits == 1))
    if window:
        positions = is_seen.sum(dim=1, keepdim=True) - 1
        is_seen &= positions - keys < window
    return is_seen
