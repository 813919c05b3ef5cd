"""Copies of a mixture of experts cannot exchange their tokens on a CPU.

Why: with data parallelism an expert layer gathers the tokens of all replicas, however many each
has, and returns the sums (vllm/distributed/device_communicators/all2all.py:AgRsAll2AllManager).
vLLM's CPU communicator (vllm/distributed/device_communicators/cpu_communicator.py:CpuCommunicator)
has neither ``all_gatherv`` nor ``reduce_scatterv``: the engine ends with a NotImplementedError as
it starts.
How: both are built from gloo's collectives. Tokens are padded to the largest batch; every replica
gets all sums and keeps its own.
Until: vLLM's communicator has them (vllm #57837).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

    _patches.set(CpuCommunicator, "all_gatherv", all_gatherv)
    _patches.set(CpuCommunicator, "reduce_scatterv", reduce_scatterv)


def all_gatherv(
    self: Any,
    input_: torch.Tensor | list[torch.Tensor],  # [sizes[rank], ...], or some
    dim: int = 0,
    sizes: Sequence[int] | None = None,
) -> torch.Tensor | list[torch.Tensor]:
    """Return the rows of all ranks, one rank after the other; the signature is vLLM's.

    Args:
        self: the communicator of the ranks.
        input_: this rank's rows, or a list of tensors with that many rows each.
        dim: must be 0, the rows.
        sizes: number of rows of each rank; None if all have equally many.

    Returns:
        [sum(sizes), ...], or a list of such tensors if a list was given.
    """
    assert dim == 0, "only rows are gathered"
    if isinstance(input_, list):
        return [all_gatherv(self, one, sizes=sizes) for one in input_]
    own = input_.shape[0]
    sizes = sizes or [own] * self.world_size
    longest = max(sizes)
    padded = input_.new_zeros((longest, *input_.shape[1:]))
    padded[:own] = input_
    gathered = padded.new_empty((longest * len(sizes), *input_.shape[1:]))
    torch.distributed.all_gather_into_tensor(gathered, padded, group=self.device_group)
    parts = gathered.split(longest)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


def reduce_scatterv(
    self: Any,
    input_: torch.Tensor,  # [sum(sizes), ...]
    dim: int = -1,
    sizes: Sequence[int] | None = None,
) -> torch.Tensor:
    """Sum the inputs of all ranks and return this rank's rows; the signature is vLLM's.

    Args:
        self: the communicator of the ranks.
        input_: rows for each rank, one rank after the other.
        dim: must be 0, the rows.
        sizes: number of rows for each rank; None if all get equally many.

    Returns:
        [sizes[rank], ...]
    """
    assert dim == 0, "only rows are scattered"
    world = self.world_size
    sizes = sizes or [input_.shape[0] // world] * world
    total = input_.clone(memory_format=torch.contiguous_format)
    torch.distributed.all_reduce(total, group=self.device_group)
    rank = self.rank_in_group
    end = list(accumulate(sizes))[rank]
    return total[end - sizes[rank] : end].clone()
