"""Copies of a mixture of experts cannot exchange their tokens on a CPU.

Why: with data parallelism a layer of experts gathers the tokens of all copies, as many as each has,
and hands the sums back (vllm/distributed/device_communicators/all2all.py:AgRsAll2AllManager).
vLLM's communicator of a CPU
(vllm/distributed/device_communicators/cpu_communicator.py:CpuCommunicator) has neither
``all_gatherv`` nor ``reduce_scatterv``: the engine ends with a NotImplementedError as it starts.
How: both, by the collectives that gloo has. The tokens are padded to the longest batch; all sums go
to every copy, which keeps its own.
Until: vLLM's communicator has them (vllm #57837).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch

from vllm_ascend_spec.compat.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the mend once."""
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
        input_: this rank's rows, or several tensors of as many rows.
        dim: 0, the rows.
        sizes: how many rows each rank has; None where all have as many.

    Returns:
        [sum(sizes), ...], or as many as were given.
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
    """Add up what all ranks have and return this rank's rows; the signature is vLLM's.

    Args:
        self: the communicator of the ranks.
        input_: rows for each rank, one rank after the other.
        dim: 0, the rows.
        sizes: how many rows are whose; None where all get as many.

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
