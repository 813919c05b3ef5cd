"""Rules for trees that look right and are not, and the one for drafts that are drawn, which is.

``verify_tree`` has none of them: its trees hold the likeliest tokens. Each verifies two children of
every node, to a depth that the case's tree has, and is a ``Step`` of ``tests/ops/tree_law.py``.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from tests.ops.enumeration import Joint, Prefix
from tests.ops.tree_law import Case, Step

# Children in the order in which they are verified, and the chance that they are these.
Children = Callable[[np.ndarray], Iterator[tuple[Prefix, float]]]
DEPTH = 2


def depths_by_row(above: torch.Tensor) -> torch.Tensor:
    """Wrong: a row's position is the root's and its index, as if the tree were a chain."""
    return torch.arange(above.shape[1]).expand_as(above)


def in_draw_order(q: np.ndarray) -> Iterator[tuple[Prefix, float]]:
    """Yield two children drawn from q without replacement, as SpecInfer verifies them."""
    for first, second in itertools.permutations(range(len(q)), 2):
        yield (first, second), q[first] * q[second] / (1 - q[first])


def re_ranked(q: np.ndarray) -> Iterator[tuple[Prefix, float]]:
    """Wrong: two children that were drawn, the likelier one first."""
    for (first, second), chance in in_draw_order(q):
        yield (first, second) if q[first] >= q[second] else (second, first), chance


def top_two(q: np.ndarray) -> Iterator[tuple[Prefix, float]]:
    """Wrong: the two likeliest children, verified as if they had been drawn."""
    first, second = (-q).argsort()[:2].tolist()
    yield (first, second), 1.0


def by_ratios(children: Children) -> Step:
    """Return the rule that accepts children by p / q, each by what those before it have left."""

    def outputs(case: Case, text: Prefix, depth: int) -> Joint:
        joint: Joint = defaultdict(float)

        def put(token: int, chance: float, below: Any) -> None:
            for output, weight in below.items():
                joint[(token, *output)] += chance * weight

        target = np.array(case.target(text))
        for tokens, drawn in children(np.array(case.draft(text))) if depth else [((), 1.0)]:
            p, q, reached = target, np.array(case.draft(text)), drawn
            for token in tokens:
                accepted = min(1.0, p[token] / q[token])
                put(token, reached * accepted, outputs(case, (*text, token), depth - 1))
                reached *= 1 - accepted
                if reached <= 0:
                    break
                rest = np.maximum(p - q, 0)
                p, q = rest / rest.sum(), np.where(np.arange(len(q)) == token, 0, q)
                q = q / q.sum()
            for token, chance in enumerate(p):
                put(token, max(reached, 0.0) * chance, {(): 1.0})
        return joint

    return lambda case, text: outputs(case, text, DEPTH)
