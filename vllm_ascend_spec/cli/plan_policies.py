"""The plan beside what others capture, for ``vllm-ascend-spec plan``."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vllm_ascend_spec import versions
from vllm_ascend_spec.cli.elsewhere import call_elsewhere
from vllm_ascend_spec.cli.plan_inputs import Case
from vllm_ascend_spec.graphs import peers, stock_own, stock_rules
from vllm_ascend_spec.graphs.figures import Figures, figures_of
from vllm_ascend_spec.graphs.load import weights_of
from vllm_ascend_spec.graphs.planner import plan
from vllm_ascend_spec.graphs.stock_rules import Engine, Stock
from vllm_ascend_spec.graphs.tiers import grid_of

# Where no rule captures anything to compare with.
SOME_GRAPHS = 32
PORTS = {"vllm": stock_rules.vllm, "vllm_ascend": stock_rules.vllm_ascend}


@dataclass(frozen=True)
class Policy:
    """One way to choose sizes, and what comes of it.

    Attributes:
        sizes_by_k: in tokens, ascending.
        figures: over the load; None where the engine would not start.
        source: whose rule or code it is.
        notes: what has to be known beside the figures.
        problem: why the engine would not start; empty if it would.
    """

    sizes_by_k: Mapping[int, tuple[int, ...]]
    figures: Figures | None
    source: str
    notes: tuple[str, ...] = ()
    problem: str = ""

    @property
    def sizes(self) -> list[int]:
        """All sizes in tokens, ascending, each once."""
        return sorted({size for row in self.sizes_by_k.values() for size in row})

    @property
    def graphs(self) -> int:
        """How many graphs that is, over all tiers."""
        return sum(map(len, self.sizes_by_k.values()))


@dataclass(frozen=True)
class Comparison:
    """Ours beside others.

    Attributes:
        ours: the plan.
        limit: what bounded its graphs, for a report.
        stock: what vLLM and vllm-ascend capture, by name.
        same_graphs: other ways to choose at most as many graphs as ours.
    """

    ours: Policy
    limit: str
    stock: dict[str, Policy]
    same_graphs: dict[str, Policy] = field(default_factory=dict)


def compare(case: Case) -> Comparison:
    """Plan, and judge every policy over the same load.

    Raises:
        ConfigError: nothing can be planned.
    """
    engine, budget = case.engine, case.budget
    weights = weights_of(case.load, engine.tiers, engine.max_num_seqs)

    def judged(sizes: Mapping[int, tuple[int, ...]], source: str, *notes: str) -> Policy:
        figures = figures_of(engine.tiers, sizes, weights, case.work)
        return Policy(sizes, figures, source, tuple(filter(None, notes)))

    answers = ask(engine)
    stock = {
        name: Policy(said.sizes_by_k, None, said.source, problem=said.problem)
        if said.problem
        else judged(said.sizes_by_k, said.source, said.note)
        for name, said in answers.items()
    }
    limit = "the budget"
    if not case.has_limit_on_graphs:
        counts = {name: policy.graphs for name, policy in stock.items()}
        graphs = counts["vllm"] or counts["vllm_ascend"] or SOME_GRAPHS
        budget = replace(budget, graphs=max(graphs, len(engine.tiers)))
        limit = "as many as vLLM captures" if counts["vllm"] else "no limit was given"
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
    same = {}
    for name, policy in stock.items():
        if policy.graphs > ours.graphs:
            shorter = peers.cut(policy.sizes_by_k, ours.graphs)
            same[f"{name}_cut"] = judged(shorter, "its sizes up to max_cudagraph_capture_size")
            spread = peers.thin(policy.sizes_by_k, ours.graphs)
            same[f"{name}_thinned"] = judged(spread, "its sizes, spread evenly over their list")
    grids = {tier.k: grid_of(tier, engine.max_num_seqs, engine.divisor) for tier in engine.tiers}
    same["even_grid"] = judged(peers.even(grids, ours.graphs), "sizes at even distances")
    return Comparison(ours, limit, stock, same)


def ask(engine: Engine) -> dict[str, Stock]:
    """Return what vLLM and vllm-ascend capture: their own code says it where it is installed."""
    installed = {"vllm": versions.installed_vllm(), "vllm_ascend": installed_vllm_ascend()}
    there = [name for name, found in installed.items() if found is not None]
    said: dict[str, Any] = {}
    if there:
        question = stock_own.question_of(engine, there)
        try:
            said = call_elsewhere(stock_own.__name__, stock_own.answers.__name__, question)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            said = {name: {"error": str(error)} for name in there}
    return {name: _stock(name, engine, installed[name], said.get(name)) for name in PORTS}


def installed_vllm_ascend() -> tuple[str, str] | None:
    """Return (distribution, version) of the installed vllm-ascend, or None."""
    version = versions.installed_version("vllm-ascend")
    return None if version is None else ("vllm-ascend", version)


def _stock(name: str, engine: Engine, installed: tuple[str, str] | None, said: Any) -> Stock:
    """Return what was said, or what our port says where nothing was."""
    if installed is None or said is None:
        return PORTS[name](engine)
    whose = " ".join(installed)
    if "error" in said:
        found = PORTS[name](engine)
        why = f"{whose} is installed but cannot be asked: {said['error']}"
        return replace(found, note="; ".join(filter(None, (found.note, why))))
    by_k = {int(k): tuple(sizes) for k, sizes in said["sizes_by_k"].items()}
    return Stock(by_k, f"{whose}, {said['source']}", said["problem"], said["note"])
