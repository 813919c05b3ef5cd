"""What captured sizes mean for a load: padding, eager batches, and the batch padded most."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vllm_ascend_spec.graphs.step_cost import StepCost
from vllm_ascend_spec.graphs.tiers import Tier

# Sizes by K, in tokens, ascending.
Sizes = Mapping[int, Sequence[int]]


@dataclass(frozen=True)
class WorstPadding:
    """A batch and the graph that it is padded to.

    Attributes:
        k: drafts per request.
        requests: number of requests in the batch.
        size: tokens of the graph.
    """

    k: int
    requests: int
    size: int

    @property
    def padding(self) -> float:
        """Padding tokens as a share of the batch's own tokens."""
        return self.size / (self.requests * (self.k + 1)) - 1


@dataclass(frozen=True)
class PaddingStats:
    """Expected values over a load; computed, not measured.

    Attributes:
        expected_padding: work spent on padding, as a share of the useful work of all batches. An
            eager batch has none.
        eager_share: share of batches that run eager.
        eager_cost: extra cost of these over graphs of exactly their size, as a share of the useful
            work of all batches, by :attr:`StepCost.eager_factor`.
        eager: batches that run eager by K, as numbers of requests.
        worst: the batch with the most padding for its size, whether the load has it or not; None
            if no batch is padded.
    """

    expected_padding: float
    eager_share: float
    eager_cost: float
    eager: Mapping[int, tuple[int, ...]]
    worst: WorstPadding | None

    @property
    def expected_waste(self) -> float:
        """Padding and the extra cost of eager batches, as a share of the useful work."""
        return self.expected_padding + self.eager_cost


def padding_of(
    tiers: Sequence[Tier],
    sizes: Sizes,
    weights: Mapping[int, Sequence[float]],
    work: StepCost,
) -> PaddingStats:
    """Return what captured sizes mean for a load.

    A batch is padded to the next size of its tier and runs eager if there is none, as in
    ``vllm/v1/cudagraph_dispatcher.py:CudagraphDispatcher.dispatch``.

    Args:
        tiers: tiers in use.
        sizes: captured sizes, multiples of their tier's query length.
        weights: ``[max_num_seqs]`` by K, see ``batch_distribution.weights_of``.
        work: cost of steps.
    """
    useful, padded, dear, left = [], [], [], []
    eager: dict[int, tuple[int, ...]] = {}
    worst: WorstPadding | None = None
    for tier in tiers:
        captured = sorted(sizes.get(tier.k, ()))
        without = []
        for n in tier.batches():
            weight, tokens = weights[tier.k][n - 1], n * tier.query_len
            own = work.of_graph(tokens)
            useful.append(weight * own)
            place = bisect_left(captured, tokens)
            if place == len(captured):
                without.append(n)
                left.append(weight)
                dear.append(weight * (work.of_eager(tokens) - own))
                continue
            padded.append(weight * (work.of_graph(captured[place]) - own))
            hole = WorstPadding(tier.k, n, captured[place])
            if hole.padding > (worst.padding if worst else 0):
                worst = hole
        eager[tier.k] = tuple(without)
    total = math.fsum(useful)
    return PaddingStats(
        math.fsum(padded) / total, math.fsum(left), math.fsum(dear) / total, eager, worst
    )
