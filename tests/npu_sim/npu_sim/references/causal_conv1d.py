"""Causal convolutions of flash-linear-attention-npu: each request's last inputs are in a cache.

Signatures are those of `fla_npu.ops.ascendc`, limits those of its checks and of aclnnCausalConv1d
(github.com/flashserve/flash-linear-attention-npu). Sums are of float32, tap by tap, so that a row
has the same bits whatever runs beside it. A device takes no float32; it is taken here, as by
attention, so that tokens can be compared. Rows of requests that are skipped are 0; a device leaves
them as they were.
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

WIDTHS = (2, 3, 4)
ALIGNMENT = 16


def _check(
    x: torch.Tensor,  # [tokens, dim]
    weight: torch.Tensor,  # [width, dim]
    bias: torch.Tensor | None,  # [dim]
    states: torch.Tensor,  # [blocks, state_len, dim]
    activation: str | None,
    counts: dict[str, torch.Tensor | None],
    batch: int,
) -> None:
    require_choice("activation", activation, (None, "silu", "swish"))
    require_dtype("x", x, FLOATS)
    require_same_dtype(x=x, weight=weight, bias=bias, states=states)
    require_choice("the weight's width", weight.shape[0], WIDTHS)
    dim = weight.shape[1]
    require(dim % ALIGNMENT == 0, f"dim is {dim}; valid: multiples of {ALIGNMENT}")
    require_shape("x", x, None, dim)
    require_shape("conv_states", states, None, None, dim)
    shortest = weight.shape[0] - 1
    require(
        states.shape[1] >= shortest, f"state_len is {states.shape[1]}; valid: {shortest} or more"
    )
    if bias is not None:
        require_shape("bias", bias, dim)
    for name, count in counts.items():
        if count is not None:
            require_shape(name, count, batch)
            allowed = (torch.int32, torch.bool) if name == "has_initial_state" else (torch.int32,)
            require_dtype(name, count, allowed)


def _bounds(query_start_loc: torch.Tensor, num_tokens: int) -> list[int]:
    """Give the first row of each request, and the end of the last."""
    require_dtype("query_start_loc", query_start_loc, (torch.int32,))
    bounds = query_start_loc.tolist()
    grows = all(first <= last for first, last in pairwise(bounds))
    require(
        bounds[0] == 0 and grows and bounds[-1] <= num_tokens,
        f"query_start_loc is {bounds}; valid: from 0, growing, up to {num_tokens}",
    )
    return bounds


def convolve(
    inputs: torch.Tensor,  # [width - 1 + rows, dim]
    weight: torch.Tensor,  # [width, dim]
    bias: torch.Tensor | None,  # [dim]
    activation: str | None,
) -> torch.Tensor:
    """Give the weighted sums of each row and the width - 1 before it, [rows, dim]."""
    rows = inputs.shape[0] - weight.shape[0] + 1
    found = inputs[:rows].float() * weight[0].float()
    for tap in range(1, weight.shape[0]):
        found = found + inputs[tap : tap + rows].float() * weight[tap].float()
    if bias is not None:
        found = found + bias.float()
    return (found if activation is None else torch.nn.functional.silu(found)).to(inputs.dtype)


@reference("fla_npu::causal_conv1d_fn")
def causal_conv1d_fn(  # noqa: PLR0917 - fla_npu's parameters
    x: torch.Tensor,  # [tokens, dim]
    weight: torch.Tensor,  # [width, dim], the oldest input's first
    bias: torch.Tensor | None,  # [dim]
    conv_states: torch.Tensor | None = None,  # [blocks, state_len, dim], changed in place
    query_start_loc: torch.Tensor | None = None,  # [requests + 1], int32
    cache_indices: torch.Tensor | None = None,  # [requests], int32
    has_initial_state: torch.Tensor | None = None,  # [requests], bool or int32
    activation: str | None = "silu",
    pad_slot_id: int = -1,
    null_block_id: int | None = 0,
    **others: Any,
) -> torch.Tensor:
    """Read prompts, from the state in the cache or from nothing, and leave their last inputs there.

    A request whose block is `pad_slot_id` or `null_block_id` is skipped.

    Returns:
        [tokens, dim].
    """
    refuse(**others)
    assert conv_states is not None
    assert query_start_loc is not None
    assert cache_indices is not None
    counts = {"cache_indices": cache_indices, "has_initial_state": has_initial_state}
    batch = query_start_loc.numel() - 1
    _check(x, weight, bias, conv_states, activation, counts, batch)
    bounds, before = _bounds(query_start_loc, x.shape[0]), weight.shape[0] - 1
    out = torch.zeros_like(x)
    blocks = cache_indices.tolist()
    starts = [0] * batch if has_initial_state is None else has_initial_state.tolist()
    for request, (first, last) in enumerate(pairwise(bounds)):
        if first == last or blocks[request] in (pad_slot_id, null_block_id):
            continue
        state = conv_states[blocks[request]]
        seen = state[:before] if starts[request] else torch.zeros_like(state[:before])
        inputs = torch.cat((seen, x[first:last]))
        out[first:last] = convolve(inputs, weight, bias, activation)
        state[:before] = inputs[-before:]
    return out


@reference("fla_npu::causal_conv1d_update")
def causal_conv1d_update(  # noqa: PLR0917 - fla_npu's parameters
    x: torch.Tensor,  # [tokens, dim]
    conv_state: torch.Tensor,  # [blocks, state_len, dim], changed in place
    weight: torch.Tensor,  # [width, dim], the oldest input's first
    bias: torch.Tensor | None = None,  # [dim]
    activation: str | None = None,
    conv_state_indices: torch.Tensor | None = None,  # [requests], int32
    num_accepted_tokens: torch.Tensor | None = None,  # [requests], int32
    query_start_loc: torch.Tensor | None = None,  # [requests + 1], int32
    max_query_len: int = -1,
    null_block_id: int | None = 0,
    block_idx_last_scheduled_token: torch.Tensor | None = None,
    initial_state_idx: torch.Tensor | None = None,
    validate_data: bool = False,
    out: torch.Tensor | None = None,  # [tokens, dim]
    **others: Any,
) -> torch.Tensor:
    """Read a few tokens of each request; its inputs before them begin at its count less one.

    They are moved to the beginning, less the oldest, and the tokens put behind. With one accepted
    token that is how a request without drafts goes on; with n, how one goes on after n of its
    tokens were right. A request whose block is `null_block_id` is skipped.

    Returns:
        `out`, or a new tensor [tokens, dim].
    """
    refuse(
        block_idx_last_scheduled_token=block_idx_last_scheduled_token,
        initial_state_idx=initial_state_idx,
        validate_data=validate_data,
        **others,
    )
    assert query_start_loc is not None
    assert conv_state_indices is not None
    counts = {"conv_state_indices": conv_state_indices, "num_accepted_tokens": num_accepted_tokens}
    batch = query_start_loc.numel() - 1
    _check(x, weight, bias, conv_state, activation, counts, batch)
    before = weight.shape[0] - 1
    if num_accepted_tokens is not None:
        require_choice("the weight's width", weight.shape[0], (4,))
    bounds = _bounds(query_start_loc, x.shape[0])
    accepted = [1] * batch if num_accepted_tokens is None else num_accepted_tokens.tolist()
    found = torch.zeros_like(x)
    for request, block in enumerate(conv_state_indices.tolist()):
        first, last = bounds[request], bounds[request + 1]
        if first == last or block == null_block_id:
            continue
        rows, offset = last - first, accepted[request] - 1
        require(rows <= max_query_len, f"a request has {rows} tokens; valid: {max_query_len}")
        # Where nothing is accepted, only the inputs of one token are kept.
        kept = before - 1 + rows if num_accepted_tokens is not None else before
        length = conv_state.shape[1]
        require(kept <= length, f"{rows} tokens want a state_len of {kept}; it is {length}")
        require(
            0 <= offset <= length - before,
            f"num_accepted_tokens is {offset + 1}; valid: 1 to {length - before + 1}",
        )
        state = conv_state[block]
        inputs = torch.cat((state[offset : offset + before], x[first:last]))
        found[first:last] = convolve(inputs, weight, bias, activation)
        state[:kept] = inputs[-kept:]
    return found if out is None else out.copy_(found)
