"""Compare our plan with what vLLM and vllm-ascend capture, for ``vllm-ascend-spec plan``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from vllm_ascend_spec.cli.plan_inputs import PlanCase
from vllm_ascend_spec.graphs import stock_rules
from vllm_ascend_spec.graphs.batch_distribution import weights_of
from vllm_ascend_spec.graphs.budget import default_graphs
from vllm_ascend_spec.graphs.padding_stats import PaddingStats, padding_of
from vllm_ascend_spec.graphs.planner import plan
from vllm_ascend_spec.graphs.tiers import grid_of

RULES = {"vllm": stock_rules.vllm, "vllm_ascend": stock_rules.vllm_ascend}


@dataclass(frozen=True)
class Policy:
    """One way to choose sizes, with its results.

    Attributes:
        sizes_by_k: sizes in tokens for each K, ascending.
        figures: expected values over the load; None if the engine would not start.
        source: where the sizes come from.
        notes: what a reader of the figures has to know.
        problem: why the engine would not start; empty if it would.
    """

    sizes_by_k: Mapping[int, tuple[int, ...]]
    figures: PaddingStats | None
    source: str
    notes: tuple[str, ...] = ()
    problem: str = ""

    @property
    def sizes(self) -> list[int]:
        """All sizes in tokens, ascending, each once."""
        return sorted({size for row in self.sizes_by_k.values() for size in row})

    @property
    def graphs(self) -> int:
        """Number of graphs over all tiers."""
        return sum(map(len, self.sizes_by_k.values()))


@dataclass(frozen=True)
class Comparison:
    """Our plan and what it is compared with.

    Attributes:
        ours: the plan.
        limit: what bounded the number of its graphs, for a report.
        stock: what vLLM and vllm-ascend capture, by name.
    """

    ours: Policy
    limit: str
    stock: dict[str, Policy]


def compare(case: PlanCase) -> Comparison:
    """Plan, and evaluate every policy over the same load.

    Raises:
        ConfigError: nothing can be planned.
    """
    engine, budget = case.engine, case.budget
    weights = weights_of(case.load, engine.tiers, engine.max_num_seqs)

    def judged(sizes: Mapping[int, tuple[int, ...]], source: str, *notes: str) -> Policy:
        figures = padding_of(engine.tiers, sizes, weights, case.work)
        return Policy(sizes, figures, source, tuple(filter(None, notes)))

    answers = {name: rule(engine) for name, rule in RULES.items()}
    stock = {
        name: Policy(said.sizes_by_k, None, said.source, problem=said.problem)
        if said.problem
        else judged(said.sizes_by_k, said.source, said.note)
        for name, said in answers.items()
    }
    limit = "the budget"
    if not case.has_limit_on_graphs:
        counts = {"vLLM": stock["vllm"].graphs, "vllm-ascend": stock["vllm_ascend"].graphs}
        grids = (grid_of(tier, engine.max_num_seqs, engine.divisor) for tier in engine.tiers)
        graphs, limit = _unlimited(counts, sum(grid.sizes for grid in grids))
        budget = replace(budget, graphs=max(graphs, len(engine.tiers)))
    planned = plan(
        engine.max_num_seqs,
        engine.tiers,
        load=case.load,
        budget=budget,
        divisor=engine.divisor,
        work=case.work,
        cover=case.cover,
    )
    ours = Policy(planned.sizes_by_k, planned.figures, "planned", planned.notes)
    return Comparison(ours, limit, stock)


def _unlimited(stock: Mapping[str, int], batches: int) -> tuple[int, str]:
    """Return how many graphs there may be by default, and the reason.

    Args:
        stock: number of graphs that others capture, by name; 0 if they do not start.
        batches: number of batch sizes over all tiers.
    """
    whose, most = next(((name, n) for name, n in stock.items() if n), ("nobody", 0))
    graphs = default_graphs(most, batches)
    if graphs >= batches:
        return graphs, "one for each batch size that the load has"
    return graphs, f"as many as {whose} captures" if graphs == most else f"at most {graphs}"
