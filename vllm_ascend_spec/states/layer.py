"""The core of vLLM's Gated DeltaNet layer on a CPU: a batch, with the states in vLLM's cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from vllm_ascend_spec.states.gated_delta import convolve, gates, normed, read_chunks, read_token


@dataclass(frozen=True)
class StateRows:
    """Where the rows and the states of a step's requests are.

    Attributes:
        bounds: first row of each request, and the number of rows.
        blocks: of each request, the state block of its text and one for each draft.
        has_state: whether a request has read anything; if not, its blocks hold another's state.
        has_drafts: whether its rows are a token and drafts, of which each row's state is kept.
    """

    bounds: list[int]
    blocks: list[list[int]]
    has_state: list[bool]
    has_drafts: list[bool]


class GatedDeltaLayer:
    """Weights and cache of a layer.

    Args:
        layer: vLLM's (vllm/model_executor/layers/mamba/gdn). Its cache is two tensors by block: the
            last inputs of the convolution [num_blocks, kernel - 1 + K, width], and the states
            [num_blocks, num_heads, value_dim, key_dim], which are read as [.., key_dim, value_dim].
        width_first: whether the first has its last two dimensions swapped.
    """

    def __init__(self, layer: Any, *, width_first: bool) -> None:
        inputs, states = layer.kv_cache
        self.inputs = inputs.transpose(1, 2) if width_first else inputs
        count, self.num_heads, self.value_dim, self.key_dim = states.shape
        self.states = states.view(count, self.num_heads, self.key_dim, self.value_dim)
        self.decay, self.shift = layer.A_log, layer.dt_bias
        weight = getattr(layer.conv1d, "_cpu_unpacked_conv_weight", None)
        weight = layer.conv1d.weight if weight is None else weight
        self.weight = weight.reshape(weight.shape[0], weight.shape[-1])
        self.bias = layer.conv1d.bias

    def run(
        self,
        rows: StateRows,
        mixed: torch.Tensor,  # [num_tokens, width]: queries, keys and values
        b: torch.Tensor,  # [num_tokens, num_heads]
        a: torch.Tensor,  # [num_tokens, num_heads]
        out: torch.Tensor,  # [num_tokens, num_heads, value_dim], written
    ) -> None:
        """Read every request's rows and write its states."""
        g, beta = gates(self.decay, self.shift, a, b)
        for index, (start, end) in enumerate(zip(rows.bounds, rows.bounds[1:], strict=False)):
            if start == end:
                continue
            here, blocks = slice(start, end), rows.blocks[index]
            q, k, v = self._convolved(mixed[here], blocks[0], rows, index)
            state = self.states[blocks[0]].float()
            if not rows.has_state[index]:
                state = torch.zeros_like(state)
            if rows.has_drafts[index] or end == start + 1:
                for row in range(end - start):
                    at = start + row
                    out[at], state = read_token(q[row], k[row], v[row], g[at], beta[at], state)
                    self.states[blocks[row]] = state
                    # What another step would read.
                    state = self.states[blocks[row]].float()
            else:
                found, state = read_chunks(q, k, v, g[here], beta[here], state)
                out[here], self.states[blocks[0]] = found.to(out.dtype), state

    def _convolved(
        self,
        x: torch.Tensor,  # [num_rows, width]
        block: int,
        rows: StateRows,
        index: int,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return queries, keys [num_rows, num_heads, key_dim] and values of a request's rows."""
        kept, count = self.inputs[block], self.weight.shape[1] - 1
        before = kept[:count].clone() if rows.has_state[index] else torch.zeros_like(kept[:count])
        found = F.silu(convolve(x, before, self.weight, self.bias)).to(x.dtype).float()
        seen = torch.cat([before, x.to(before.dtype)])
        if rows.has_drafts[index]:
            # The inputs before row n + 1 begin at n, see patches/cpu_accepted_states.py.
            kept[: count - 1 + len(x)] = seen[1:]
        else:
            kept[:count] = seen[-count:]
        keys = (x.shape[1] - self.num_heads * self.value_dim) // 2
        q, k, v = found.split([keys, keys, self.num_heads * self.value_dim], -1)
        shared = self.num_heads * self.key_dim // keys
        q, k = (
            normed(part.view(len(x), -1, self.key_dim)).repeat_interleave(shared, 1)
            for part in (q, k)
        )
        return q * self.key_dim**-0.5, k, v.view(len(x), self.num_heads, self.value_dim)
