"""Find the cheapest sizes for each number of graphs, exactly, by dynamic programming.

``best[m][j]`` is the least work of all batches that candidate ``j`` or a smaller one serves, with
``m`` graphs of which ``j`` is the largest. The next smaller graph is some ``i``, and ``j`` serves
what lies between: ``best[m][j] = min over i < j of best[m-1][i] + load(i, j] · work(j)``.
The best predecessor ``i`` never falls as ``j`` grows: with ``i < i'`` and ``j < j'`` the costs of
``(i, j)`` and ``(i', j')`` together are at most those of ``(i, j')`` and ``(i', j)``, by
``load(i, i'] · (work(j') - work(j)) >= 0``. So rows between two others examine only the
predecessors between theirs.

Tiers share no graphs, so their costs add up for each way to divide the graphs among them. The least
sum for each number of graphs is the (min, +) convolution of their costs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Candidates that are computed at a time.
BLOCK = 64


@dataclass(frozen=True)
class Ladder:
    """The cheapest choice of candidates for each number of graphs.

    Attributes:
        work: ``[graphs + 1]`` float64, work of the cheapest choice with 0, 1, … graphs.
        last: ``[graphs + 1]`` int32, its largest candidate, counted from 1; 0 for none.
        before: ``[graphs + 1, candidates + 1]`` int32, predecessor of each, counted from 1.
    """

    work: np.ndarray
    last: np.ndarray
    before: np.ndarray

    def chosen(self, graphs: int) -> list[int]:
        """Return the indices of the chosen candidates, counted from 0, ascending."""
        found: list[int] = []
        place = int(self.last[graphs])
        for left in range(graphs, 0, -1):
            found.append(place - 1)
            place = int(self.before[left, place])
        return found[::-1]


def solve(load: np.ndarray, work: np.ndarray, rest: np.ndarray, most: int) -> Ladder:
    """Return the cheapest sizes of one tier for each number of graphs.

    Args:
        load: ``[candidates]`` float64, load of the batches that a candidate serves and no smaller
            one does.
        work: ``[candidates]`` float64, work of replaying each; it does not fall.
        rest: ``[candidates + 1]`` float64, cost of the batches that no graph serves, with no graph
            (the first entry) or with the candidate as the largest; infinite where not allowed.
        most: largest number of graphs, 0 or more.
    """
    count = len(load)
    most = min(most, count)
    served = np.concatenate(([0.0], np.cumsum(load)))  # [count + 1]
    best = np.full(count + 1, np.inf)
    best[0] = 0.0
    before: np.ndarray = np.zeros((most + 1, count + 1), dtype=np.int32)
    last: np.ndarray = np.zeros(most + 1, dtype=np.int32)
    totals = np.full(most + 1, rest[0])
    for graphs in range(1, most + 1):
        best, before[graphs] = _one_more(best, served, work)
        total = best + rest
        last[graphs] = total.argmin()
        totals[graphs] = total[last[graphs]]
    return Ladder(totals, last, before)


def _one_more(
    best: np.ndarray, served: np.ndarray, work: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return ``best`` with one more graph, and the predecessor of each candidate.

    Args:
        best: ``[candidates + 1]`` float64, the first entry for no graph at all.
        served: ``[candidates + 1]`` float64, load up to each candidate.
        work: ``[candidates]`` float64, work of replaying each.
    """
    count = len(work)
    after = np.full(count + 1, np.inf)
    before: np.ndarray = np.zeros(count + 1, dtype=np.int32)
    low = 0  # best predecessor in the last row of the previous block
    for start in range(0, count, BLOCK):
        stop = min(start + BLOCK, count)
        high = int((best[:stop] - work[stop - 1] * served[:stop]).argmin())
        # cost[row, column] is that of candidate start+1+row with predecessor low+column.
        cost = best[low : high + 1] - work[start:stop, None] * served[low : high + 1]
        not_before = np.arange(low, high + 1) > np.arange(start, stop)[:, None]
        cost[not_before] = np.inf
        columns = cost.argmin(axis=1)
        here = slice(start + 1, stop + 1)
        before[here] = columns + low
        least = cost[np.arange(stop - start), columns]
        after[here] = least + served[here] * work[start:stop]
        low = high
    return after, before


def join(first: np.ndarray, second: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the (min, +) convolution of two costs by number of graphs.

    Args:
        first: ``[a]`` float64, cost with 0, 1, … graphs.
        second: ``[b]`` float64, likewise.
        most: largest number of graphs of both together.

    Returns:
        The least cost and how many graphs the second then has, each ``[min(a + b - 1, most + 1)]``.
    """
    size = min(len(first) + len(second) - 1, most + 1)
    least = np.full(size, np.inf)
    taken: np.ndarray = np.zeros(size, dtype=np.int32)
    for graphs, cost in enumerate(second[:size]):
        both = first[: size - graphs] + cost
        part = slice(graphs, graphs + len(both))
        cheaper = both < least[part]
        least[part][cheaper] = both[cheaper]
        taken[part][cheaper] = graphs
    return least, taken
