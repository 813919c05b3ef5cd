"""Compare what two copies exchanged, step by step."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.replicas.collectives import IDLE, SECOND_HALF

# What a copy did, and how often it called which collective meanwhile.
Step = tuple[str, Counter[str]]


def read_steps(folder: Path, rank: int) -> list[Step]:
    """Return the steps of a copy, both halves of a pass as one."""
    steps: list[Step] = []
    for name, counts in json.loads((folder / f"{rank}.json").read_text()):
        if name == SECOND_HALF:
            steps[-1][1].update(counts)
        else:
            steps.append((name, Counter(counts)))
    # A scheduler with nothing to run asks for a pass of nothing, and then for an idle one.
    return [step for step in steps if step[1]]


def out_of_step(one: list[Step], other: list[Step]) -> dict[int, tuple[Step, Step]]:
    """Return the steps in which two copies did not exchange as much.

    The longer one of the two was asked for its notes a little later.
    """
    pairs = enumerate(zip(one, other, strict=False))
    return {index: pair for index, pair in pairs if pair[0][1] != pair[1][1]}


def beside_idle(steps: list[Step], other: list[Step]) -> list[Counter[str]]:
    """Return what a copy exchanged in those of its steps in which the other had no work."""
    pairs = zip(steps, other, strict=False)
    return [mine for (name, mine), (theirs, _) in pairs if name != IDLE and theirs == IDLE]
