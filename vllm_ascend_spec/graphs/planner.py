"""Plan the capture sizes with the least expected padding that a budget allows, exactly."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.graphs.batch_distribution import BatchDistribution, uniform, weights_of
from vllm_ascend_spec.graphs.budget import Budget, Limits, limits_of
from vllm_ascend_spec.graphs.padding_stats import PaddingStats, padding_of
from vllm_ascend_spec.graphs.step_cost import StepCost
from vllm_ascend_spec.graphs.tiers import SizeGrid, Tier, check_count, grid_of, tiers_of

if TYPE_CHECKING:
    import numpy as np

# Fewer graphs are preferred if more would save less than this share of the work: rounding error.
ROUNDING = 1e-12


@dataclass(frozen=True)
class CapturePlan:
    """The sizes to capture, and their expected effect.

    Attributes:
        max_num_seqs: most requests that the engine runs at once.
        tiers: tiers that batches belong to.
        sizes_by_k: sizes by K, in tokens, ascending; graphs of different K are different graphs,
            even with the same number of tokens.
        figures: padding and eager batches over the load.
        load: name of the load.
        notes: why batches run eager, a line each.
    """

    max_num_seqs: int
    tiers: tuple[Tier, ...]
    sizes_by_k: Mapping[int, tuple[int, ...]]
    figures: PaddingStats
    load: str
    notes: tuple[str, ...] = field(default=())

    @property
    def sizes(self) -> tuple[int, ...]:
        """All sizes in tokens, ascending, each once: ``cudagraph_capture_sizes``."""
        return tuple(sorted({size for sizes in self.sizes_by_k.values() for size in sizes}))

    @property
    def graphs(self) -> int:
        """Number of graphs over all tiers."""
        return sum(map(len, self.sizes_by_k.values()))

    @property
    def eager_batches(self) -> tuple[int, ...]:
        """Requests of the batches that run eager in some tier, ascending."""
        return tuple(sorted({n for row in self.figures.eager.values() for n in row}))

    @property
    def covers_all(self) -> bool:
        """Whether every batch of every tier is replayed."""
        return not self.eager_batches


@dataclass(frozen=True)
class _Choices:
    """Candidate sizes of one tier: those that some batch of the load needs, and the largest.

    Attributes:
        sizes: sizes in tokens, ascending.
        load: load of the batches that each size serves and no smaller one does.
        work: work of replaying each size.
        rest: cost of eager batches without a graph (the first entry) and with each size as the
            largest; infinite for all but the last if every batch has to be covered.
    """

    sizes: list[int]
    load: list[float]
    work: list[float]
    rest: list[float]

    @property
    def may_be_eager(self) -> bool:
        """Whether the largest size may be left out."""
        return any(math.isfinite(cost) for cost in self.rest[:-1])


def plan(
    max_num_seqs: int,
    tiers: int | Sequence[int] | Sequence[Tier],
    *,
    load: BatchDistribution | None = None,
    budget: Budget | None = None,
    divisor: int = 1,
    work: StepCost | None = None,
    cover: bool = True,
) -> CapturePlan:
    """Return the sizes with the least expected work: padding, and eager steps if there are any.

    Every batch that can be covered is covered, up to the largest graph of its tier. Of all such
    plans within the budget, the result has the least work, and among equals the fewest graphs. If
    the budget allows fewer graphs than there are tiers, the tiers that decode most batches get one
    each. Without ``cover``, large batches may run eager where that is cheaper by
    :attr:`StepCost.eager_factor`.

    Args:
        max_num_seqs: most requests that the engine runs at once.
        tiers: K, several K, or the tiers in use.
        load: how often batches of each size are decoded; default: all equally often.
        budget: limits; default: none, so that each batch size in the load gets a graph.
        divisor: divisor of all sizes: the tensor-parallel size with sequence parallelism.
        work: cost of steps; default: their tokens.
        cover: whether every batch that can be replayed has to be.

    Raises:
        ConfigError: a ValueError; no graph can be captured, or an argument is out of range. It
            names the constraint and the nearest value that works.
    """
    check_count("max_num_seqs", max_num_seqs, 1)
    check_count("divisor", divisor, 1)
    tiers = tiers_of(max_num_seqs, tiers)
    load, work, budget = load or uniform(max_num_seqs), work or StepCost(), budget or Budget()
    weights = weights_of(load, tiers, max_num_seqs)
    full = {tier.k: grid_of(tier, max_num_seqs, divisor) for tier in tiers}
    _check_grids(full, max_num_seqs, divisor)
    possible = [grid for grid in full.values() if grid.count]
    limits = limits_of(
        budget,
        len(possible),
        min(grid.stride * grid.least for grid in possible),
        max(grid.stride * grid.count for grid in possible),
    )
    grids = {t.k: grid_of(t, max_num_seqs, divisor, limits.max_tokens) for t in tiers}
    choices = {
        tier.k: _choices(tier, grids[tier.k], weights[tier.k], work, cover)
        for tier in _with_graphs(tiers, grids, weights, limits if cover else None)
    }
    sizes = _cheapest(choices, limits.graphs)
    chosen = {tier.k: tuple(sizes.get(tier.k, ())) for tier in tiers}
    figures = padding_of(tiers, chosen, weights, work)
    notes = _notes(tiers, full, grids, figures, limits, cover)
    return CapturePlan(max_num_seqs, tuple(tiers), chosen, figures, load.name, notes)


def _check_grids(grids: Mapping[int, SizeGrid], max_num_seqs: int, divisor: int) -> None:
    for k, grid in grids.items():
        if grid.unit > max_num_seqs:
            problem = (
                f"with K={k} a graph has a multiple of {grid.stride} tokens, which is {grid.unit} "
                f"requests, more than max_num_seqs={max_num_seqs}; nearest: "
                f"max_num_seqs={grid.unit}, or no sequence parallelism"
            )
            raise ConfigError("divisor", divisor, problem)


def _with_graphs(
    tiers: Sequence[Tier],
    grids: Mapping[int, SizeGrid],
    weights: Mapping[int, Sequence[float]],
    limits: Limits | None,
) -> list[Tier]:
    """Return the tiers that get graphs; where not all can, those that decode most batches."""
    possible = [tier for tier in tiers if grids[tier.k].count]
    if limits is None or limits.graphs is None or limits.graphs >= len(possible):
        return possible
    covered = {t.k: sum(weights[t.k][: grids[t.k].top]) for t in possible}
    return sorted(possible, key=lambda tier: -covered[tier.k])[: limits.graphs]


def _choices(
    tier: Tier, grid: SizeGrid, weights: Sequence[float], work: StepCost, cover: bool
) -> _Choices:
    eager = [
        weight * work.of_eager(n * tier.query_len) if weight else 0.0
        for n, weight in enumerate(weights, 1)
    ]
    # Eager cost of the batches above each size.
    above = list(accumulate(reversed(eager), initial=0.0))[::-1]
    found = _Choices([], [], [], [above[0]])
    for place in range(1, grid.count + 1):
        batches = weights[(place - 1) * grid.unit : place * grid.unit]
        # A size that no batch of the load needs is worse than the next smaller one that is needed.
        if place == grid.count or any(batches):
            found.sizes.append(place * grid.stride)
            found.load.append(sum(batches))
            found.work.append(work.of_graph(place * grid.stride))
            found.rest.append(above[place * grid.unit])
    if cover:
        found.rest[:-1] = [math.inf] * len(found.sizes)
    return found


def _cheapest(choices: Mapping[int, _Choices], most: int | None) -> dict[int, list[int]]:
    """Return the cheapest sizes of each tier."""
    count = sum(len(found.sizes) for found in choices.values())
    most = count if most is None else min(most, count)
    if most == count and not any(found.may_be_eager for found in choices.values()):
        return {k: found.sizes for k, found in choices.items()}
    import numpy as np

    from vllm_ascend_spec.graphs import dp_solver

    ladders = [
        dp_solver.solve(np.array(found.load), np.array(found.work), np.array(found.rest), most)
        for found in choices.values()
    ]
    steps: list[tuple[np.ndarray, np.ndarray | None]] = [(ladders[0].work, None)]
    for ladder in ladders[1:]:
        steps.append(dp_solver.join(steps[-1][0], ladder.work, most))
    total = steps[-1][0]
    graphs = int(np.argmax(total <= total.min() * (1 + ROUNDING)))
    sizes: dict[int, list[int]] = {}
    for (k, found), ladder, (_, taken) in reversed(
        list(zip(choices.items(), ladders, steps, strict=True))
    ):
        # The first tier gets the graphs that the others leave.
        own = graphs if taken is None else int(taken[graphs])
        sizes[k] = [found.sizes[place] for place in ladder.chosen(own)]
        graphs -= own
    return sizes


def _notes(
    tiers: Sequence[Tier],
    full: Mapping[int, SizeGrid],
    grids: Mapping[int, SizeGrid],
    figures: PaddingStats,
    limits: Limits,
    cover: bool,
) -> tuple[str, ...]:
    """Return why batches run eager, a line for each tier that has some."""
    found = []
    for tier in tiers:
        if not figures.eager[tier.k]:
            continue
        first, grid = figures.eager[tier.k][0], full[tier.k]
        if first > grid.top:
            enough = -(-tier.last // grid.unit) * grid.unit
            why = f"sizes are multiples of {grid.stride} tokens; max_num_seqs={enough} covers them"
        elif first > grids[tier.k].top or cover:
            why = f"the budget ({limits.reason}) has no graph for them"
        else:
            why = "graphs for them would cost the load more than they save"
        found.append(f"K={tier.k}: batches of {first} requests and more run eager: {why}")
    return tuple(found)
