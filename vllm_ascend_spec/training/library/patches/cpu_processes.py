"""Processes that torchrun starts cannot train together on a CPU.

Why: speculators/train/distributed.py:maybe_setup_distributed sets the accelerator's index and
raises where there is none.
How: the same with the backend ``gloo`` and without a device.
Until: speculators has it.
"""

from __future__ import annotations

import os
from datetime import timedelta

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert

# A process that measures or saves is waited for so long.
PATIENCE = timedelta(minutes=30)


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from speculators.train import cli

    _patches.set(cli, "maybe_setup_distributed", _set_up)


def _set_up(sp_size: int = 1) -> None:
    import torch.distributed as dist
    from speculators.train import distributed

    if "LOCAL_RANK" not in os.environ:
        return
    dist.init_process_group("gloo", timeout=PATIENCE)
    distributed._local_rank = int(os.environ["LOCAL_RANK"])
    distributed._is_distributed = True
    distributed._rank, distributed._world_size = dist.get_rank(), dist.get_world_size()
    distributed._init_sp_process_groups(dist.get_rank(), dist.get_world_size(), sp_size)
