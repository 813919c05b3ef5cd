"""One of two ranks of test_cpu_expert_exchange.py: ``exchange_rank.py RANK FILE``, prints JSON."""

from __future__ import annotations

import json
import os
import sys

import torch
from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

from vllm_ascend_spec.patches.upstream import cpu_expert_exchange as patch

RANKS, SIZES = 2, [3, 1]


def rows(rank: int, count: int) -> torch.Tensor:
    """Return [count, 2] rows that say whose they are."""
    return 10.0 * rank + torch.arange(2.0 * count).view(count, 2)


if __name__ == "__main__":
    rank = int(sys.argv[1])
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=RANKS
    )
    patch.apply()
    group = torch.distributed.group.WORLD
    communicator = CpuCommunicator(group, torch.device("cpu"), group, unique_name="dp")
    tokens, experts = communicator.all_gatherv(
        [rows(rank, SIZES[rank]), rows(rank, SIZES[rank]).int()], dim=0, sizes=SIZES
    )
    given = (1 + rank) * rows(0, sum(SIZES))
    kept = given.clone()
    found = {
        "gathered": tokens.tolist(),
        "gathered as": [str(tokens.dtype), str(experts.dtype), experts.tolist()],
        "gathered evenly": communicator.all_gatherv(rows(rank, 2)).tolist(),
        "added up": communicator.reduce_scatterv(given, dim=0, sizes=SIZES).tolist(),
        "added up evenly": communicator.reduce_scatterv(given, dim=0).tolist(),
        "left as it was": bool(torch.equal(given, kept)),
    }
    print(json.dumps(found), flush=True)
    # Who ends first takes the connection with it, and the other one dies of that.
    torch.distributed.barrier()
    # gloo's threads may still run, and the process would abort as it takes them down.
    os._exit(0)
