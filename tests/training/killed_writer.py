"""Fill a store in processes that are killed at random times; a program of ``test_shards.py``.

It prints how many were killed, and how many samples each of them had stored.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from functools import cache
from pathlib import Path

import torch

from vllm_ascend_spec.training.shard_layout import Layout
from vllm_ascend_spec.training.shards import Sample, ShardReader, open_writer

# Wide, so that a kill often hits a write.
WIDTH = 1024
LAYOUT = Layout("target", (1, 2, 4), WIDTH, "bfloat16")
SAMPLES = 200
SHARD_BYTES = 2 << 20


@cache
def sample(number: int) -> Sample:
    drawn = torch.Generator().manual_seed(number)
    length = 20 + number % 37
    return Sample(
        f"{number:032x}",
        torch.randint(1000, (length,), generator=drawn),
        torch.rand(length, generator=drawn) < 0.5,
        (torch.arange(length * 3 * WIDTH) + number)
        .remainder(251)
        .bfloat16()
        .view(length, 3, WIDTH),
    )


def fill(folder: Path) -> None:
    with open_writer("--output", folder, LAYOUT, SHARD_BYTES) as writer:
        for number in range(SAMPLES):
            if sample(number).id not in writer:
                writer.add(sample(number))


def start(folder: Path) -> int:
    child = os.fork()
    if child == 0:
        fill(folder)
        os._exit(0)
    return child


def check(folder: Path) -> int:
    """Return how many samples are there, each as it was given."""
    if not (folder / "layout.json").exists():
        return 0
    reader = ShardReader(folder)
    for name in reader.lengths:
        found, expected = reader.read(name), sample(int(name, 16))
        for part in ("token_ids", "loss_mask", "hidden_states"):
            assert torch.equal(getattr(found, part), getattr(expected, part)), (name, part)
    return len(reader)


def main(folder: Path, kills: int, seed: int) -> None:
    draw, stored = random.Random(seed), [0]
    for number in range(SAMPLES):
        sample(number)  # the processes inherit them, so that writing is all that takes time
    begin = time.monotonic()
    os.waitpid(start(folder / "whole"), 0)
    whole = time.monotonic() - begin
    killed = 0
    while stored[-1] < SAMPLES:
        child = start(folder / "killed")
        if killed < kills:
            time.sleep(draw.uniform(0, whole / 6))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        killed += os.WIFSIGNALED(status)
        assert os.WIFSIGNALED(status) or status == 0, status
        stored.append(check(folder / "killed"))
        assert stored[-1] >= stored[-2], stored
    assert list(ShardReader(folder / "killed").lengths) == list(
        ShardReader(folder / "whole").lengths
    )
    assert not list((folder / "killed").glob("*.tmp"))
    print(killed, *stored)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
