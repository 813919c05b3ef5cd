"""Scaled dot-product attention over one sequence, which all attention ops here share."""

import torch


def attend(
    query: torch.Tensor,  # [q_len, heads, size]
    key: torch.Tensor,  # [kv_len, kv_heads, size]
    value: torch.Tensor,  # [kv_len, kv_heads, value_size]
    scale: float,
    masked: torch.Tensor | None = None,  # [q_len, kv_len] bool, true where a key is not seen
    sink: torch.Tensor | None = None,  # [heads], a logit per head that joins the sum alone
) -> tuple[torch.Tensor, torch.Tensor]:
    """Give softmax(scale * query key^T) value and the logarithm of the softmax's sum.

    Computed in float32. A row that sees no key is 0, and its logarithm +inf, as CANN gives it.

    Returns:
        [q_len, heads, value_size] in query's dtype and [q_len, heads] in float32.
    """
    q_len, heads, _ = query.shape
    kv_len, kv_heads, value_size = value.shape
    groups = heads // kv_heads
    # [kv_heads, groups, q_len, size] against [kv_heads, 1, kv_len, size]: no copy per group.
    q = query.float().reshape(q_len, kv_heads, groups, -1).permute(1, 2, 0, 3)
    k = key.float().permute(1, 2, 0).unsqueeze(1)
    v = value.float().permute(1, 0, 2).unsqueeze(1)
    scores = torch.matmul(q, k) * scale
    if masked is not None:
        scores = scores.masked_fill(masked, float("-inf"))
    if sink is not None:
        column = sink.float().reshape(kv_heads, groups, 1, 1).expand(-1, -1, q_len, 1)
        scores = torch.cat((scores, column), -1)
    total = torch.logsumexp(scores, -1, keepdim=True)
    weights = torch.exp(scores - total)[..., :kv_len].nan_to_num(0.0)
    out = torch.matmul(weights, v).permute(2, 0, 1, 3).reshape(q_len, heads, value_size)
    log_sum = total.squeeze(-1).permute(2, 0, 1).reshape(q_len, heads)
    return out.to(query.dtype), log_sum.masked_fill(log_sum == float("-inf"), float("inf"))


def band(
    q_len: int,
    kv_len: int,
    offset: int,
    pre_tokens: int | None,
    next_tokens: int | None,
    device: torch.device,
) -> torch.Tensor | None:
    """Give what a row does not see, [q_len, kv_len] bool.

    Row i stands at key `i + offset` and sees the keys from pre_tokens before it to next_tokens
    after it; None is no limit.
    """
    if pre_tokens is None and next_tokens is None:
        return None
    distance = torch.arange(kv_len, device=device) - (
        torch.arange(q_len, device=device).unsqueeze(1) + offset
    )
    masked = torch.zeros_like(distance, dtype=torch.bool)
    if next_tokens is not None:
        masked |= distance > next_tokens
    if pre_tokens is not None:
        masked |= distance < -pre_tokens
    return masked
