"""Prefix caching of layers with a state, with drafts on a CPU.

Why: vLLM copies states from block to block in Triton kernels
(vllm/v1/worker/mamba_utils.py:precopy_mamba_align_fused_kernel and
postprocess_mamba_fused_kernel), and has no others: a CPU stops at the first step.
How: the same copies by ``memmove``; the kernels get addresses, as those of a GPU do.
Until: vLLM has them for a CPU, as it has ``batch_memcpy_kernel``.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import torch

from vllm_ascend_spec.patches.patching import Launchable, Patches

_patches = Patches()
revert = _patches.revert


@dataclass(frozen=True)
class StateMemory:
    """Where the states are; lists have an entry for each state of each layer.

    Attributes:
        tables: of each cache group, the address of its block table, int32 [max_reqs, columns].
        columns: of a block table.
        bases: address of the first block.
        block_strides: bytes from block to block.
        element_sizes: bytes of an element.
        inner_sizes: elements of a row of a convolution's inputs, or of a whole state.
        rows: of a convolution's inputs; 0 for a state.
        groups: which group's block table it has.
        channels: of a convolution whose inputs are laid out by channel.
        channel_strides: bytes from channel to channel there.
        by_channel: whether they are.
    """

    tables: list[int]
    columns: int
    bases: list[int]
    block_strides: list[int]
    element_sizes: list[int]
    inner_sizes: list[int]
    rows: list[int]
    groups: list[int]
    channels: list[int]
    channel_strides: list[int]
    by_channel: bool

    def block(self, state: int, request: int, column: int) -> int:
        """Return the address of the block in a column of a request."""
        entry = self.tables[self.groups[state]] + 4 * (request * self.columns + column)
        number = ctypes.c_int32.from_address(entry).value
        return self.bases[state] + number * self.block_strides[state]

    def copy(self, request: int, source: int, target: int, accepted: int) -> None:
        """Copy the states after some accepted drafts from one column of a request to another."""
        for state, rows in enumerate(self.rows):
            size, to = self.element_sizes[state], self.block(state, request, target)
            if rows == 0:  # the state after each draft has a column of its own
                begin = self.block(state, request, source + accepted)
                ctypes.memmove(to, begin, self.inner_sizes[state] * size)
                continue
            begin = self.block(state, request, source)
            if not self.by_channel:
                row = self.inner_sizes[state] * size
                ctypes.memmove(to, begin + accepted * row, (rows - accepted) * row)
                continue
            for channel in range(self.channels[state]):
                at = channel * self.channel_strides[state]
                ctypes.memmove(to + at, begin + at + accepted * size, (rows - accepted) * size)


def memory_of(arguments: tuple[Any, ...], *, by_channel: bool) -> StateMemory:
    """Read the ten arguments that both kernels have."""
    tables, columns, bases, strides, sizes, inner, rows, groups, channels, steps = arguments
    return StateMemory(
        tables=[address % (1 << 64) for address in tables.tolist()],
        columns=columns,
        bases=[address % (1 << 64) for address in bases.tolist()],
        block_strides=strides.tolist(),
        element_sizes=sizes.tolist(),
        inner_sizes=inner.tolist(),
        rows=rows.tolist(),
        groups=groups.tolist(),
        channels=channels.tolist(),
        channel_strides=steps.tolist(),
        by_channel=by_channel,
    )


def precopy(
    target_columns: torch.Tensor,  # int32 [max_reqs]
    source_columns: torch.Tensor,  # int32 [max_reqs], -1 where there is no state yet
    accepted: torch.Tensor,  # int32 [max_reqs], accepted drafts of the step before
    *arguments: Any,
    CONV_STATE_DIM_FIRST: bool,
    **_: Any,
) -> None:
    """Bring each request's state to the block that this step writes."""
    *where, mapping, num_reqs = arguments
    assert mapping is None, "a V2 model runner"
    memory = memory_of(tuple(where), by_channel=CONV_STATE_DIM_FIRST)
    for request in range(num_reqs):
        source, target = int(source_columns[request]), int(target_columns[request])
        if source not in {-1, target}:
            memory.copy(request, source, target, int(accepted[request]))


def postprocess(
    counts: torch.Tensor,  # int32 [max_reqs], accepted tokens with the sampled one
    columns: torch.Tensor,  # int32 [max_reqs], written in this step
    scheduled: torch.Tensor,  # int32 [max_reqs]
    computed: torch.Tensor,  # int32 [max_reqs], before the step
    drafts: torch.Tensor,  # int32 [max_reqs]
    *arguments: Any,
    block_size: int,
    CONV_STATE_DIM_FIRST: bool,
    **_: Any,
) -> None:
    """Keep the state at the end of a block that a request has passed in this step."""
    *where, counts_out, mapping, num_reqs = arguments
    assert mapping is None, "a V2 model runner"
    memory = memory_of(tuple(where), by_channel=CONV_STATE_DIM_FIRST)
    for request in range(num_reqs):
        # Tokens in the state of the first column, and in that of the last accepted token.
        first = int(computed[request] + scheduled[request] - drafts[request])
        last = first + int(counts[request]) - 1
        whole = last // block_size * block_size
        if whole < first:
            continue
        source, target = int(columns[request]), whole // block_size - 1
        if source == target:
            counts_out[request] = 1
        if source != target or whole > first:
            memory.copy(request, source, target, whole - first)


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm.v1.worker import mamba_utils

    _patches.set(mamba_utils, "precopy_mamba_align_fused_kernel", Launchable(precopy))
    _patches.set(mamba_utils, "postprocess_mamba_fused_kernel", Launchable(postprocess))
