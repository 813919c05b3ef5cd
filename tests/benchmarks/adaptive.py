"""``benchmarks adaptive``: compare a K chosen for each step with no speculation and with fixed K.

Engines of all configurations live in this process and take turns, phase by phase, so the machine's
drift affects them alike. Each serves all loads in the same order: the engine that chooses K has to
notice by itself that the load has changed, and its figures include what that costs. ``adaptive`` is
compared with every fixed K, ``auto`` with the K that it is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.adaptive_table import format_table
from vllm_ascend_spec.bench import privacy, provenance
from vllm_ascend_spec.bench.closed_loop import ClosedLoopEngine, Phase, Run
from vllm_ascend_spec.bench.local_engine import keep_out_of_collections, prepare_environment
from vllm_ascend_spec.bench.progress import Progress
from vllm_ascend_spec.bench.stats import Summary, paired_ratio
from vllm_ascend_spec.config.schema import ADAPTIVE, AUTO, FIXED

NONE = "none"
# A second engine with the largest K: the two differ only by chance.
CONTROL = "control"
PLAIN, REPETITIVE = "plain", "repetitive"
# The alternating load: the number of clients, and the name of their prompts.
ALTERNATING = ((1, PLAIN), (16, PLAIN), (1, REPETITIVE), (16, REPETITIVE))


@dataclass(frozen=True, kw_only=True)
class AdaptiveBenchConfig:
    """What ``benchmarks adaptive`` measures; see the command's options.

    Attributes:
        model: the target.
        speculative_config: the config with the largest K.
        prompts: prompts by name of the text.
        clients: numbers of clients of the cells, each with every temperature.
        temperatures: temperatures of the cells and of the alternating load.
        max_tokens: average tokens per answer.
        rounds: passes over everything.
        compiled: whether to use torch.compile.
        alternates: whether the alternating load is measured, too.
        trace: whether the steps of the alternating load are kept, for the picture.
        has_control: whether there is a second engine with the largest K.
        draft_length: what is compared: ``adaptive`` or ``auto``.
    """

    model: str
    speculative_config: Mapping[str, Any]
    prompts: Mapping[str, Sequence[str]]
    clients: Sequence[int]
    temperatures: Sequence[float]
    max_tokens: int
    rounds: int
    compiled: bool
    alternates: bool = True
    trace: bool = False
    has_control: bool = False
    draft_length: str = ADAPTIVE

    @property
    def longest(self) -> int:
        """The largest K."""
        return int(self.speculative_config["num_speculative_tokens"])

    @property
    def cells(self) -> list[Phase]:
        """Loads that are judged separately."""
        return [Phase(n, PLAIN, t) for t in self.temperatures for n in self.clients]

    def alternating(self, temperature: float) -> list[Phase]:
        """Return the alternating load, with about as much time for one client as for many."""
        return [Phase(n, text, temperature, 64 if n > 1 else 12) for n, text in ALTERNATING]


def configurations(
    longest: int, *, has_control: bool = False, chosen: str = ADAPTIVE
) -> dict[str, int | None]:
    """Return K by configuration; None for no speculation, and for a K that is chosen.

    Args:
        longest: the largest K.
        has_control: whether there is a second engine with the largest K.
        chosen: how K is chosen: ``adaptive`` or ``auto``.
    """
    control = {CONTROL: longest} if has_control else {}
    shortest = longest if chosen == AUTO else 1
    fixed = {f"K={k}": k for k in range(shortest, longest + 1)}
    return {NONE: None, **fixed, chosen: None, **control}


def chosen_in(names: Iterable[str]) -> str:
    """Return which configuration chooses K."""
    return next(name for name in names if name in (ADAPTIVE, AUTO))


def run(plan: AdaptiveBenchConfig, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run the engines in turn and return the record; ``tell`` prints its table."""
    prepare_environment()
    engines = _start(plan)
    cells, loads = _measure(plan, engines)
    record = {
        "benchmark": "adaptive",
        "provenance": provenance.collect(),
        "plan": {
            "model": privacy.path(plan.model),
            "speculative_config": privacy.options(plan.speculative_config),
            "clients": list(plan.clients),
            "temperatures": list(plan.temperatures),
            "max_tokens": plan.max_tokens,
            "rounds": plan.rounds,
            "compiled": plan.compiled,
            "alternates": plan.alternates,
            "draft_length": plan.draft_length,
        },
        "cells": {
            name: control_figures(cell, fixed_name(plan.longest)) | cell_figures(cell)
            for name, cell in cells.items()
        },
        "alternating": {
            name: figures({c: [joined(runs).speed for runs in found] for c, found in load.items()})
            | {"best_of_each_phase": best_of_each_phase(load)}
            for name, load in loads.items()
        },
    }
    if plan.trace:
        record["traces"] = {
            name: {c: thinned(joined(found[-1]).trace) for c, found in load.items()}
            for name, load in loads.items()
        }
    tell(format_table(record))
    return record


def _start(plan: AdaptiveBenchConfig) -> dict[str, ClosedLoopEngine]:
    most = max(*plan.clients, *(n for n, _ in ALTERNATING))
    engines = {}
    names = configurations(plan.longest, has_control=plan.has_control, chosen=plan.draft_length)
    progress = Progress(len(names))
    for name, drafts in names.items():
        progress.next(f"loading {name}")
        spec: dict[str, Any] | None = dict(plan.speculative_config)
        if name == NONE:
            spec = None
        elif drafts is not None:
            spec = {**plan.speculative_config, "num_speculative_tokens": drafts}
        engines[name] = ClosedLoopEngine(
            plan.model,
            spec,
            most_clients=most,
            max_tokens=plan.max_tokens,
            section=_section_of(name),
            compiled=plan.compiled,
        )
    progress.close()
    keep_out_of_collections()
    return engines


def _section_of(name: str) -> dict[str, str] | None:
    """Return our options for a configuration; None without speculation."""
    if name == NONE:
        return None
    return {"draft_length": name if name in (ADAPTIVE, AUTO) else FIXED}


def _measure(
    plan: AdaptiveBenchConfig, engines: Mapping[str, ClosedLoopEngine]
) -> tuple[dict[str, dict[str, list[Run]]], dict[str, dict[str, list[list[Run]]]]]:
    """Let the engines take turns.

    Returns:
        Runs by cell and configuration; and by alternating load and configuration, the runs of its
        phases. Each list has one entry per round.
    """
    cells: dict[str, dict[str, list[Run]]] = {}
    loads: dict[str, dict[str, list[list[Run]]]] = {}
    changing = plan.temperatures if plan.alternates else ()
    alternate = {name: engine for name, engine in engines.items() if name != CONTROL}
    turns = len(plan.cells) * len(engines) + len(changing) * len(alternate)
    progress = Progress((plan.rounds + 1) * turns)
    for index in range(plan.rounds + 1):
        # The first round warms up: it compiles, and it fills caches.
        is_warm = index > 0
        which = f"round {index} of {plan.rounds}" if is_warm else "warming up"
        for phase in plan.cells:
            for name, engine in engines.items():
                progress.next(f"{which}, {phase.name}: {name}")
                found = engine.serve(phase, plan.prompts[phase.text])
                if is_warm:
                    cells.setdefault(phase.name, {}).setdefault(name, []).append(found)
        for temperature in changing:
            title = f"alternating, T={temperature:g}"
            for name, engine in alternate.items():
                progress.next(f"{which}, {title}: {name}")
                runs = [
                    engine.serve(p, plan.prompts[p.text]) for p in plan.alternating(temperature)
                ]
                if is_warm:
                    loads.setdefault(title, {}).setdefault(name, []).append(runs)
    progress.close()
    return cells, loads


def joined(runs: Sequence[Run]) -> Run:
    """Join the runs of consecutive phases into one."""
    whole = Run()
    for run_ in runs:
        whole.trace += [(whole.seconds + s, whole.tokens + n, k) for s, n, k in run_.trace]
        whole.tokens += run_.tokens
        whole.seconds += run_.seconds
    return whole


def figures(speeds: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return the tokens per second of each configuration, and the adaptive one's ratios.

    Args:
        speeds: tokens per second of each round, by configuration.

    Returns:
        ``tokens_per_s`` by configuration; ``to_none`` and ``to_best_fixed``, ratios formed round by
        round, the latter to the configuration named ``best_fixed``; with several rounds,
        ``to_chosen_before``, the ratio in each round to the configuration that is best in the other
        rounds, because the best of several is partly best by luck.
    """
    chosen = chosen_in(speeds)
    summaries = {name: Summary.of(found) for name, found in speeds.items()}
    best = max((name for name in speeds if name != chosen), key=lambda n: summaries[n].median)
    return {
        "tokens_per_s": {name: summary.as_dict() for name, summary in summaries.items()},
        "to_none": paired_ratio(speeds[chosen], speeds[NONE]).as_dict(),
        "best_fixed": best,
        "to_best_fixed": paired_ratio(speeds[chosen], speeds[best]).as_dict(),
        **({"to_chosen_before": to_chosen_before(speeds)} if len(speeds[chosen]) > 1 else {}),
    }


def to_chosen_before(speeds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the ratio in each round to the fixed configuration that is best in the other rounds.

    Args:
        speeds: tokens per second of each round, by configuration; at least two rounds.
    """
    judged = speeds[chosen_in(speeds)]
    fixed = {name: found for name, found in speeds.items() if found is not judged}
    chosen = []
    for place in range(len(judged)):
        others = {
            name: Summary.of([*found[:place], *found[place + 1 :]]).median
            for name, found in fixed.items()
        }
        chosen.append(fixed[max(others, key=lambda name: others[name])][place])
    return paired_ratio(judged, chosen).as_dict()


def control_figures(cell: dict[str, list[Run]], longest: str) -> dict[str, Any]:
    """Remove the control from a cell and return its ratio to the identical engine.

    Args:
        cell: runs by configuration.
        longest: name of the configuration with the largest K.
    """
    control = cell.pop(CONTROL, None)
    if control is None:
        return {}
    one, other = ([run.speed for run in runs] for runs in (control, cell[longest]))
    return {CONTROL: paired_ratio(one, other).as_dict()}


def cell_figures(cell: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """Return the figures of a cell, its steps, and the factors of its ratio."""
    found = figures({name: [run.speed for run in runs] for name, runs in cell.items()})
    steps = {name: steps_by_length(runs) for name, runs in cell.items()}
    return found | {"steps": steps, "factors": factors(steps, found["best_fixed"])}


def factors(steps: Mapping[str, Mapping[str, Mapping[str, float]]], best: str) -> dict[str, float]:
    """Split the ratio of the adaptive engine's speed to that of the best fixed one.

    Args:
        steps: figures of the steps by configuration and K (:func:`steps_by_length`).
        best: the configuration to compare with.

    Returns:
        Three ratios whose product is the ratio of the speeds. ``lengths``: the ratio if each step
        of the adaptive engine took the time and wrote the tokens of a step of the engine with that
        fixed K; ``step_time``: the time of those steps / its own; ``acceptance``: its own tokens /
        those of those steps.
    """
    its = steps[chosen_in(steps)]
    fixed = {name: found["fixed"] for name, found in steps.items() if found is not its}
    shares = {fixed_name(k): row["share"] for k, row in its.items()}
    tokens = sum(share * fixed[name]["tokens_per_step"] for name, share in shares.items())
    seconds = sum(share * fixed[name]["ms_per_step"] for name, share in shares.items())
    its_tokens = sum(row["share"] * row["tokens_per_step"] for row in its.values())
    its_seconds = sum(row["share"] * row["ms_per_step"] for row in its.values())
    of_best = fixed[best]["tokens_per_step"] / fixed[best]["ms_per_step"]
    return {
        "lengths": round(tokens / seconds / of_best, 4),
        "step_time": round(seconds / its_seconds, 4),
        "acceptance": round(its_tokens / tokens, 4),
    }


def fixed_name(k: int | str) -> str:
    """Return the configuration fixed at a K of :func:`steps_by_length`; K=0 is no speculation."""
    return NONE if str(k) == "0" else f"K={k}"


def steps_by_length(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Return the figures of the steps of each K, including steps that process prompts.

    Returns:
        By K as text, or by ``fixed``: ``share`` of the steps, ``tokens_per_step`` of all requests
        together and ``ms_per_step``.
    """
    sums: dict[str, tuple[int, int, float]] = {}
    for run_ in runs:
        before, written = 0.0, 0
        for at, tokens, k in run_.trace:
            name = "fixed" if k is None else str(k)
            count, all_tokens, seconds = sums.get(name, (0, 0, 0.0))
            sums[name] = (count + 1, all_tokens + tokens - written, seconds + at - before)
            before, written = at, tokens
    total = sum(count for count, _, _ in sums.values())
    return {
        name: {
            "share": round(count / total, 4),
            "tokens_per_step": round(tokens / count, 4),
            "ms_per_step": round(1000 * seconds / count, 4),
        }
        for name, (count, tokens, seconds) in sorted(sums.items())
    }


def best_of_each_phase(rounds: Mapping[str, Sequence[Sequence[Run]]]) -> dict[str, Any]:
    """Return the speed of an oracle that knows the best fixed K of each phase beforehand.

    Args:
        rounds: by configuration, the runs of the phases of each round.

    Returns:
        ``tokens_per_s``, and the best ``configurations``, one per phase.
    """
    chosen, tokens, seconds = [], 0.0, 0.0
    fixed = {name: found for name, found in rounds.items() if name != chosen_in(rounds)}
    for place, phase in enumerate(next(iter(fixed.values()))[0]):
        speeds = {
            name: Summary.of([runs[place].speed for runs in found]).median
            for name, found in fixed.items()
        }
        chosen.append(max(speeds, key=lambda name: speeds[name]))
        tokens += phase.tokens
        seconds += phase.tokens / speeds[chosen[-1]]
    return {"tokens_per_s": tokens / seconds, "configurations": chosen}


def thinned(
    trace: Sequence[tuple[float, int, int | None]], points: int = 400
) -> list[tuple[float, int, int | None]]:
    """Return about ``points`` evenly spaced points of a trace, including the last one."""
    every = max(1, math.ceil(len(trace) / points))
    return [(round(s, 4), n, k) for s, n, k in trace[::-1][::every][::-1]]
