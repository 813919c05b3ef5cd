"""Which states belong to which rows of Gated DeltaNet layers, on the NPU.

Why: vllm-ascend 0.30.0rc2 gives the kernel a table of K+1 states for each request as one list
(vllm_ascend/ops/gdn.py:AscendGatedDeltaNetAttention._forward_core), and the kernel takes the
list's i-th state for the i-th row of the batch. If one request has fewer than K drafts, the
requests behind it read and overwrite other requests' states (vllm-ascend #17837).
How: the list has the states of the rows that there are.
Until: vllm-ascend passes the table; 0.30.0rc2 is the newest release.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert


def states_of_rows(
    table: torch.Tensor,  # [num_reqs, K + 1]
    lengths: torch.Tensor,  # [num_reqs], rows of each request
    num_rows: int,
) -> torch.Tensor:
    """Return the state of each row, [num_rows]; the host does not wait for the device."""
    ends = lengths.cumsum(0)
    rows = torch.arange(num_rows, device=table.device)
    request = (rows[:, None] >= ends).sum(1).clamp(max=table.shape[0] - 1)
    place = rows - (ends - lengths)[request]
    # Rows behind the last request's are padding.
    return table[request, place.clamp(max=table.shape[1] - 1)]


class RowStates:
    """The kernel, which gets the states of the rows.

    Args:
        stock: ``fla_npu.ops.ascendc.recurrent_gated_delta_rule``.
    """

    def __init__(self, stock: Callable[..., torch.Tensor]) -> None:
        self.stock = stock
        # All layers of a step have the same lengths.
        self._lengths: torch.Tensor | None = None
        self._states: torch.Tensor | None = None

    def __call__(
        self,
        query: torch.Tensor,  # [num_rows, num_heads, key_dim]
        *args: Any,
        actual_seq_lengths: torch.Tensor,  # int32 [1 + num_reqs]: 0, then rows of each request
        ssm_state_indices: torch.Tensor,  # int32 [num_rows], or [num_reqs * (K + 1)] with drafts
        **kwargs: Any,
    ) -> torch.Tensor:
        """Return outputs [num_rows, num_heads, value_dim]."""
        if ssm_state_indices.numel() != query.shape[0]:
            # A graph has to work them out itself, as its lengths change from replay to replay.
            is_captured = torch.npu.is_current_stream_capturing()
            if is_captured or self._lengths is not actual_seq_lengths:
                lengths = actual_seq_lengths[1:]
                table = ssm_state_indices.view(lengths.numel(), -1)
                self._states = states_of_rows(table, lengths, query.shape[0])
                self._lengths = actual_seq_lengths
            ssm_state_indices = self._states
        return self.stock(
            query,
            *args,
            actual_seq_lengths=actual_seq_lengths,
            ssm_state_indices=ssm_state_indices,
            **kwargs,
        )


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm_ascend.ops import gdn

    kernel = RowStates(gdn.recurrent_gated_delta_rule)
    _patches.set(gdn, "recurrent_gated_delta_rule", kernel)
