"""The gated delta rule (arXiv 2412.06464) of flash-linear-attention-npu.

Signatures and limits are those of `fla_npu.ops.ascendc`; documented under
aclnnRecurrentGatedDeltaRule (github.com/flashserve/flash-linear-attention-npu). Both ops go token
by token, in float32, with the same sums: a text has the same state however it was read.
A device works prompts out in chunks, and takes only bfloat16 and heads of 128; float32 is taken
here, as by attention, so that tokens can be compared.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch

from npu_sim.references.checks import (
    FLOATS,
    refuse,
    require,
    require_choice,
    require_dtype,
    require_same_dtype,
    require_shape,
)
from npu_sim.references.registry import reference

MAX_HEADS = 256
HEAD_SIZE = 128
# Of one request in a step: drafts and the token before them.
MAX_ROWS = 8
CHUNK = 64


def read_token(
    q: torch.Tensor,  # [heads, key_dim], scaled
    k: torch.Tensor,  # [heads, key_dim]
    v: torch.Tensor,  # [heads, value_dim]
    g: torch.Tensor,  # [heads], logarithm of the decay
    beta: torch.Tensor,  # [heads]
    state: torch.Tensor,  # [heads, value_dim, key_dim]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Give the output [heads, value_dim] and the new state; all float32."""
    state = state * g.exp()[:, None, None]
    error = (v - torch.bmm(state, k[:, :, None])[:, :, 0]) * beta[:, None]
    state = torch.baddbmm(state, error[:, :, None], k[:, None, :])
    return torch.bmm(state, q[:, :, None])[:, :, 0], state


def _check(
    query: torch.Tensor,  # [tokens, key_heads, key_dim]
    key: torch.Tensor,  # likewise
    value: torch.Tensor,  # [tokens, value_heads, value_dim]
    beta: torch.Tensor,  # [tokens, value_heads]
    g: torch.Tensor,  # [tokens, value_heads], float32
) -> None:
    require_dtype("query", query, FLOATS)
    require_same_dtype(query=query, key=key, value=value, beta=beta)
    require_dtype("g", g, (torch.float32,))
    require(query.dim() == 3, f"query has {query.dim()} dimensions; valid: 3")
    tokens, key_heads, _ = query.shape
    require_shape("query", query, tokens, key_heads, HEAD_SIZE)
    require_shape("key", key, tokens, key_heads, HEAD_SIZE)
    require_shape("value", value, tokens, None, HEAD_SIZE)
    value_heads = value.shape[1]
    for heads in (key_heads, value_heads):
        require(heads <= MAX_HEADS, f"{heads} heads; valid: up to {MAX_HEADS}")
    require(
        value_heads % key_heads == 0,
        f"{value_heads} heads of values; valid: multiples of {key_heads}, those of keys",
    )
    require_shape("beta", beta, tokens, value_heads)
    require_shape("g", g, tokens, value_heads)


def _prepared(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Give all three in float32, keys and scaled queries for each head of the values."""
    shared = value.shape[1] // query.shape[1]
    q, k = (x.float().repeat_interleave(shared, 1) for x in (query, key))
    return q * scale, k, value.float()


@reference("fla_npu::recurrent_gated_delta_rule")
def recurrent_gated_delta_rule(
    query: torch.Tensor,  # [tokens, key_heads, 128], normed
    key: torch.Tensor,  # [tokens, key_heads, 128], normed
    value: torch.Tensor,  # [tokens, value_heads, 128]
    state: torch.Tensor,  # [blocks, value_heads, 128, 128] by value and key; changed in place
    *,
    beta: torch.Tensor,  # [tokens, value_heads]
    scale: float = 1.0,
    actual_seq_lengths: torch.Tensor,  # [1 + requests], int32: where rows begin, then their numbers
    ssm_state_indices: torch.Tensor,  # [tokens], int32
    num_accepted_tokens: torch.Tensor | None = None,  # [requests], int32
    g: torch.Tensor | None = None,  # [tokens, value_heads], float32, logarithm of the decay
    gk: torch.Tensor | None = None,
) -> torch.Tensor:
    """Read a few tokens of each request, and keep the state after each in its own block.

    The first token of a request reads the block of the token whose number is the request's
    count of accepted tokens, so that may be no more than its tokens. Requests without tokens are
    skipped.

    Returns:
        [tokens, value_heads, 128].
    """
    refuse(gk=gk)
    require(g is not None, "neither g nor gk is given")
    assert g is not None
    _check(query, key, value, beta, g)
    require_dtype("state", state, (torch.float32, torch.bfloat16))
    require_shape("state", state, None, value.shape[1], HEAD_SIZE, HEAD_SIZE)
    for name, tensor in (
        ("actual_seq_lengths", actual_seq_lengths),
        ("ssm_state_indices", ssm_state_indices),
        ("num_accepted_tokens", num_accepted_tokens),
    ):
        if tensor is not None:
            require_dtype(name, tensor, (torch.int32,))
    require_shape("ssm_state_indices", ssm_state_indices, query.shape[0])
    require_shape("actual_seq_lengths", actual_seq_lengths, None)
    if num_accepted_tokens is not None:
        require_shape("num_accepted_tokens", num_accepted_tokens, len(actual_seq_lengths) - 1)
    q, k, v = _prepared(query, key, value, scale)
    blocks, out, betas = ssm_state_indices.tolist(), torch.zeros_like(value), beta.float()
    row, *lengths = actual_seq_lengths.tolist()
    accepted = [1] * len(lengths) if num_accepted_tokens is None else num_accepted_tokens.tolist()
    for length, count in zip(lengths, accepted, strict=True):
        if length == 0:
            continue
        require(0 < length <= MAX_ROWS, f"a request has {length} tokens; valid: up to {MAX_ROWS}")
        reason = f"num_accepted_tokens is {count} where a request has {length} tokens"
        require(0 < count <= length, f"{reason}; valid: 1 to {length}")
        now = state[blocks[row + count - 1]].float()
        for at in range(row, row + length):
            found, now = read_token(q[at], k[at], v[at], g[at], betas[at], now)
            out[at] = found.to(out.dtype)
            state[blocks[at]] = now.to(state.dtype)
        row += length
    return out


@reference("fla_npu::chunk_gated_delta_rule_fwd")
def chunk_gated_delta_rule_fwd(
    q: torch.Tensor,  # [1, key_heads, tokens, 128], normed
    k: torch.Tensor,  # likewise
    v: torch.Tensor,  # [1, value_heads, tokens, 128]
    g: torch.Tensor,  # [1, tokens, value_heads], float32, logarithm of the decay
    beta: torch.Tensor,  # [1, tokens, value_heads]
    *,
    initial_state: torch.Tensor
    | None = None,  # [requests, value_heads, 128, 128], by key and value
    output_final_state: bool = False,
    chunk_size: int = CHUNK,
    cu_seqlens: tuple[int, ...] | None = None,  # first row of each request, and the end
    chunk_indices: tuple[int, ...] | None = None,  # pairs of a request and a chunk of it
    scale: float | None = None,
    layout: str = "BNSD",
    disable_recompute: bool = True,
    **others: Any,
) -> tuple[torch.Tensor | None, ...]:
    """Read the prompts of all requests, none of which is empty.

    Returns:
        Outputs [1, tokens, value_heads, 128]; the states after each, like `initial_state`, if
        wanted; then eight that only a training wants, None.
    """
    del disable_recompute  # of training
    refuse(**others)
    require_choice("layout", layout, ("BNSD",))
    require_choice("chunk_size", chunk_size, (CHUNK,))
    given = {"q": (q, 4), "k": (k, 4), "v": (v, 4), "g": (g, 3), "beta": (beta, 3)}
    for name, (tensor, dims) in given.items():
        require_shape(name, tensor, 1, *(None,) * (dims - 1))
        require(tensor.is_contiguous(), f"{name} has gaps")
    query, key, value = (x[0].transpose(0, 1) for x in (q, k, v))
    _check(query, key, value, beta[0], g[0])
    tokens, heads = value.shape[:2]
    require(cu_seqlens is not None, "the simulator has no reference for cu_seqlens=None")
    assert cu_seqlens is not None
    lengths = [last - first for first, last in pairwise(cu_seqlens)]
    require(
        cu_seqlens[0] == 0 and cu_seqlens[-1] == tokens and min(lengths) > 0,
        f"cu_seqlens is {cu_seqlens}; valid: from 0, growing, to {tokens}",
    )
    chunks = [(i, c) for i, n in enumerate(lengths) for c in range(-(-n // CHUNK))]
    wanted = tuple(number for pair in chunks for number in pair)
    require(
        chunk_indices is None or tuple(chunk_indices) == wanted,
        f"chunk_indices is {chunk_indices}; valid: {wanted}",
    )
    shape = len(lengths), heads, HEAD_SIZE, HEAD_SIZE
    if initial_state is None:
        initial_state = torch.zeros(shape, dtype=torch.float32, device=q.device)
    require_dtype("initial_state", initial_state, (torch.float32, torch.bfloat16))
    require_shape("initial_state", initial_state, *shape)
    queries, keys, values = _prepared(
        query, key, value, HEAD_SIZE**-0.5 if scale is None else scale
    )
    out, final = torch.empty_like(value, memory_format=torch.contiguous_format), []
    betas = beta[0].float()
    for request, (first, last) in enumerate(pairwise(cu_seqlens)):
        state = initial_state[request].float().transpose(1, 2).contiguous()
        for at in range(first, last):
            found, state = read_token(queries[at], keys[at], values[at], g[0, at], betas[at], state)
            out[at] = found.to(out.dtype)
        final.append(state.transpose(1, 2))
    states = torch.stack(final).to(initial_state.dtype) if output_final_state else None
    return out[None], states, *(None,) * 8
