"""One rank of test_collectives.py: `collective_rank.py RANK RANKS PORT`, prints JSON."""

import json
import sys

import torch
import torch.distributed as dist
from npu_sim import counters

RANK, RANKS, PORT = map(int, sys.argv[1:])


def start(dtype=torch.float32):
    return torch.tensor([RANK + 1, 10 * (RANK + 1)], dtype=dtype).npu()


def new(count, dtype=torch.float32):
    return torch.zeros(count, dtype=dtype, device="npu")


def all_reduce(x, out):
    out.copy_(x)
    dist.all_reduce(out)


def all_reduce_max(x, out):
    out.copy_(x)
    dist.all_reduce(out, op=dist.ReduceOp.MAX)


def broadcast(x, out):
    out.copy_(x)
    dist.broadcast(out, src=1)


def all_gather(x, out):
    dist.all_gather_into_tensor(out, x)


def reduce_scatter(x, out):
    dist.reduce_scatter_tensor(out, x)


def all_to_all(x, out):
    dist.all_to_all_single(out, x)


def chain(x, out):
    """Ops between collectives: 2 (sum of all) + sum of all squares' roots = 4 times the sum."""
    first = x * 2
    dist.all_reduce(first)
    parts = torch.zeros(2 * RANKS, device="npu")
    dist.all_gather_into_tensor(parts, x)
    out.copy_(first + 2 * parts.view(RANKS, 2).sum(0))


def large(x, out):
    """More than the shared memory of a rank holds at once."""
    many = x[:1].repeat(700_000)
    dist.all_reduce(many)
    out.copy_(many[-1:] * (many == many[0]).all())


CASES = {
    "all_reduce": (all_reduce, 2),
    "all_reduce_max": (all_reduce_max, 2),
    "all_reduce_bfloat16": (all_reduce, 2),
    "broadcast": (broadcast, 2),
    "all_gather": (all_gather, 2 * RANKS),
    "reduce_scatter": (reduce_scatter, 1),
    "all_to_all": (all_to_all, 2),
    "chain": (chain, 2),
    "large": (large, 1),
}


def uneven():
    """Return what a collective says in which the ranks have unequal amounts."""
    mine = new(RANK + 1)
    try:
        dist.all_gather_into_tensor(new(RANKS * len(mine)), mine)
    except RuntimeError as error:
        return str(error)
    return ""


def capture(step, *arguments):
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        step(*arguments)
    return graph


def both_ways(name):
    """Return what a case gives eager, and in a replay after a capture on zeros."""
    step, count = CASES[name]
    dtype = torch.bfloat16 if name.endswith("bfloat16") else torch.float32
    eager, captured, x = new(count, dtype), new(count, dtype), start(dtype)
    step(x, eager)
    x.zero_()
    graph = capture(step, x, captured)
    x.copy_(start(dtype))
    graph.replay()
    return eager.tolist(), captured.tolist()


def main():
    torch.npu.set_device(RANK)
    dist.init_process_group(
        "hccl", init_method=f"tcp://127.0.0.1:{PORT}", rank=RANK, world_size=RANKS
    )
    counted = {}
    before = counters.snapshot()
    for name in ("all_reduce", "all_reduce_max", "all_reduce_bfloat16", "all_gather"):
        counted[name] = both_ways(name)
    ops = (counters.snapshot() - before).ops
    ways = counted | {name: both_ways(name) for name in CASES if name not in counted}
    x, out = start(), new(2)
    graph = capture(all_reduce, x, out)
    replays = []
    for _ in range(3):
        graph.replay()
        replays.append(out.tolist())
        x.mul_(10)
    result = {
        "eager": {name: eager for name, (eager, _) in ways.items()},
        "captured": {name: captured for name, (_, captured) in ways.items()},
        "replays": replays,
        "counts": {
            name: [op.launched, op.replayed]
            for name, op in ops.items()
            if name.startswith("hccl::")
        },
    }
    result["uneven"] = uneven()
    dist.barrier()
    dist.destroy_process_group()
    print(json.dumps(result))


main()
