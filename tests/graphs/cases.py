"""Cases of the planner for Hypothesis, and the plans that it is compared with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from hypothesis import strategies as st

from vllm_ascend_spec.graphs.batch_distribution import (
    BatchDistribution,
    normal,
    uniform,
    weights_of,
    zipf,
)
from vllm_ascend_spec.graphs.padding_stats import PaddingStats, padding_of
from vllm_ascend_spec.graphs.step_cost import StepCost, measured
from vllm_ascend_spec.graphs.stock_rules import CaptureInputs
from vllm_ascend_spec.graphs.tiers import (
    Tier,
    grid_of,
    tiers_of_drafts,
    tiers_of_schedule,
)

Sizes = Mapping[int, Sequence[int]]
# Two sums of the same terms in another order.
CLOSE = 1e-9


@dataclass(frozen=True)
class Case:
    """What is planned; the budget is drawn apart."""

    engine: CaptureInputs
    load: BatchDistribution
    work: StepCost

    def figures(self, sizes: Sizes) -> PaddingStats:
        weights = weights_of(self.load, self.engine.tiers, self.engine.max_num_seqs)
        return padding_of(self.engine.tiers, sizes, weights, self.work)

    def smallest(self) -> int:
        """Return the tokens of the smallest graph that serves a batch."""
        engine = self.engine
        grids = {
            grid_of(t, engine.max_num_seqs, engine.divisor): next(iter(t.batches()))
            for t in engine.tiers
        }
        needed = [-(-first // grid.unit) * grid.stride for grid, first in grids.items()]
        return min(s for s, grid in zip(needed, grids, strict=True) if grid.count)

    def grids(self, max_tokens: int | None = None) -> dict[int, range]:
        """Return every size that can be captured and is needed, by K."""
        engine = self.engine
        grids = {
            t.k: grid_of(t, engine.max_num_seqs, engine.divisor, max_tokens) for t in engine.tiers
        }
        return {k: range(g.stride, g.count * g.stride + 1, g.stride) for k, g in grids.items()}


@st.composite
def tiers(draw: st.DrawFn, max_num_seqs: int) -> tuple[tuple[Tier, ...], tuple | None]:
    """Return one K, several K, or a schedule with its rows."""
    kind = draw(st.sampled_from(("one", "several", "schedule")))
    if kind != "schedule":
        most = 1 if kind == "one" else 3
        drafts = draw(st.lists(st.integers(0, 8), min_size=1, max_size=most, unique=True))
        return tiers_of_drafts(max_num_seqs, drafts if any(drafts) else [3]), None
    lasts = sorted(draw(st.sets(st.integers(1, max_num_seqs), min_size=1, max_size=3)))
    firsts = [1, *(last + 1 for last in lasts)]
    rows = tuple(
        (first, last, draw(st.integers(1, 8))) for first, last in zip(firsts, lasts, strict=False)
    )
    return tiers_of_schedule(max_num_seqs, rows), rows


@st.composite
def loads(draw: st.DrawFn, max_num_seqs: int) -> BatchDistribution:
    """Return a named load, or counts of which many are 0."""
    kind = draw(st.sampled_from(("uniform", "zipf", "normal", "counts")))
    if kind == "counts":
        count = st.one_of(st.just(0), st.integers(1, 1000))
        sizes = st.lists(count, min_size=max_num_seqs, max_size=max_num_seqs)
        counts = draw(sizes.filter(any))
        return BatchDistribution("counts", tuple(map(float, counts)))
    if kind == "normal":
        mean = draw(st.floats(1, max_num_seqs))
        return normal(max_num_seqs, mean, draw(st.floats(0.5, max_num_seqs)))
    return {"uniform": uniform, "zipf": zipf}[kind](max_num_seqs)


@st.composite
def cases(draw: st.DrawFn, most_seqs: int, *, with_times: bool = True) -> Case:
    """Return an engine for which at least one graph of each tier can be captured."""
    max_num_seqs = draw(st.integers(1, most_seqs))
    chosen, rows = draw(tiers(max_num_seqs))
    ranks = draw(st.sampled_from((1, 1, 2, 3, 4, 8)))
    if any(math.lcm(t.query_len, ranks) // t.query_len > max_num_seqs for t in chosen):
        ranks = 1
    engine = CaptureInputs(
        max_num_seqs=max_num_seqs,
        tiers=chosen,
        schedule=rows,
        tensor_parallel_size=ranks,
        sequence_parallel=ranks > 1,
    )
    work = StepCost(draw(st.floats(1, 8)))
    if with_times and draw(st.booleans()):
        times = st.lists(st.floats(0.1, 50), min_size=1, max_size=5)
        work = measured([(place * 40 + 1, t) for place, t in enumerate(draw(times))])
    return Case(engine, draw(loads(max_num_seqs)), work)


def total_cost(figures: PaddingStats) -> float:
    """Return what is minimised where every batch is covered, or eager steps are priced."""
    return figures.expected_waste


def coverings(case: Case, graphs: int) -> Iterator[dict[int, tuple[int, ...]]]:
    """Yield every choice of at most ``graphs`` sizes with the largest of each tier."""
    choices = []
    for k, grid in case.grids().items():
        if not grid:
            choices.append([(k, ())])
            continue
        smaller = grid[:-1]
        choices.append(
            [
                (k, (*chosen, grid[-1]))
                for count in range(min(len(smaller), graphs - 1) + 1)
                for chosen in combinations(smaller, count)
            ]
        )
    for together in product(*choices):
        if sum(len(sizes) for _, sizes in together) <= graphs:
            yield dict(together)


def everything(case: Case, graphs: int) -> Iterator[dict[int, tuple[int, ...]]]:
    """Yield every choice of at most ``graphs`` sizes."""
    choices = [
        [
            (k, chosen)
            for count in range(min(len(grid), graphs) + 1)
            for chosen in combinations(grid, count)
        ]
        for k, grid in case.grids().items()
    ]
    for together in product(*choices):
        if sum(len(sizes) for _, sizes in together) <= graphs:
            yield dict(together)
