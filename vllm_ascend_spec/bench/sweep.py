"""``bench sweep``: compare methods, K, clients and temperatures, by category of prompts.

Engines live in this process and take turns, load by load, so the machine's drift affects them
alike. Many engines do so in groups, one group after another. Each group has its own engine without
speculation, so a ratio never compares two groups.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from vllm_ascend_spec.bench import privacy, provenance
from vllm_ascend_spec.bench.closed_loop import ClosedLoopEngine, Phase, Run
from vllm_ascend_spec.bench.local_engine import (
    end_engines,
    keep_out_of_collections,
    prepare_environment,
)
from vllm_ascend_spec.bench.progress import Progress
from vllm_ascend_spec.bench.stats import Summary
from vllm_ascend_spec.bench.sweep_configurations import Configuration, grouped
from vllm_ascend_spec.bench.sweep_figures import NONE, best_of, figures
from vllm_ascend_spec.config.schema import FIXED
from vllm_ascend_spec.metrics.rule import note_on_rule


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """What ``bench sweep`` measures; see the command's options.

    Attributes:
        model: the target.
        configurations: configurations to compare with no speculation.
        prompts: prompts by category; a load sends each prompt of its category once.
        concurrency: numbers of clients, each of which waits for its answer.
        temperatures: 0 is greedy.
        max_tokens: average tokens per answer.
        rounds: passes over everything.
        compiled: whether to use torch.compile.
        at_once: most configurations that take turns, not counting no speculation.
        device: the device to run on.
        arguments: further arguments of ``LLM``.
    """

    model: str
    configurations: Sequence[Configuration]
    prompts: Mapping[str, Sequence[str]]
    concurrency: Sequence[int]
    temperatures: Sequence[float]
    max_tokens: int
    rounds: int
    compiled: bool
    at_once: int
    device: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def loads(self) -> list[Phase]:
        """Loads, category by category."""
        return [
            Phase(clients, category, temperature, len(prompts))
            for category, prompts in self.prompts.items()
            for temperature in self.temperatures
            for clients in self.concurrency
        ]

    @property
    def groups(self) -> list[list[Configuration]]:
        """Groups of configurations that take turns."""
        return grouped(self.configurations, self.at_once)

    def as_dict(self) -> dict[str, Any]:
        """Return what a record may show of the plan."""
        return {
            "model": privacy.path(self.model),
            "device": self.device,
            "prompts": {name: len(prompts) for name, prompts in self.prompts.items()},
            "concurrency": list(self.concurrency),
            "temperatures": list(self.temperatures),
            "max_tokens": self.max_tokens,
            "rounds": self.rounds,
            "compiled": self.compiled,
            "arguments": dict(self.arguments),
            "groups": [[one.name for one in group] for group in self.groups],
            "note": (
                "Engines of a group took turns. Each group has an engine without speculation of "
                "its own; a ratio to none is within a group, round by round."
            ),
        }


def run(plan: SweepConfig, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run all groups and return the record; ``tell`` prints its table, and options to copy."""
    prepare_environment()
    rows: list[dict[str, Any]] = []
    rules: dict[str, str | None] = {}
    record: dict[str, Any] = {
        "benchmark": "sweep",
        "provenance": provenance.collect(),
        "plan": plan.as_dict(),
    }
    for number, group in enumerate(plan.groups, 1):
        with _engines(plan, group) as engines:
            rules |= {name: engine.rule for name, engine in engines.items()}
            runs = _measure(plan, engines, f"group {number} of {len(plan.groups)}")
        for load, by_engine in runs.items():
            cell = {
                "category": load.text,
                "temperature": load.temperature,
                "concurrency": load.clients,
            }
            for name, found in by_engine.items():
                row = {**cell, "group": number, "configuration": name}
                rows.append({**row, **figures(found, by_engine[NONE])})
    record["configurations"] = {
        one.name: {
            "method": one.method,
            "drafts": one.drafts,
            "rule": rules[one.name],
            "speculative_config": privacy.options(one.spec),
        }
        for one in plan.configurations
    }
    record["results"] = rows
    record["best"] = best_of(rows)
    tell(format_table(record))
    tell(_to_copy(record, plan.configurations))
    return record


@contextmanager
def _engines(
    plan: SweepConfig, group: Sequence[Configuration]
) -> Iterator[dict[str, ClosedLoopEngine]]:
    """Start the engines of a group, and end them."""
    specs: dict[str, Mapping[str, Any] | None] = {NONE: None}
    specs |= {one.name: one.spec for one in group}
    engines: dict[str, ClosedLoopEngine] = {}
    try:
        with Progress(len(specs)) as progress:
            for name, spec in specs.items():
                progress.next(f"loading {name}")
                engines[name] = ClosedLoopEngine(
                    plan.model,
                    spec,
                    most_clients=max(plan.concurrency),
                    max_tokens=plan.max_tokens,
                    section=None if spec is None else {"draft_length": FIXED},
                    compiled=plan.compiled,
                    counts=True,
                    arguments=plan.arguments,
                )
        keep_out_of_collections()
        yield engines
    finally:
        left = [engine.llm for engine in engines.values()]
        engines.clear()
        end_engines(left)


def _measure(
    plan: SweepConfig, engines: Mapping[str, ClosedLoopEngine], group: str
) -> dict[Phase, dict[str, list[Run]]]:
    """Let the engines of a group take turns."""
    runs: dict[Phase, dict[str, list[Run]]] = {}
    # One category suffices: what is compiled depends on the number of clients.
    first = next(iter(plan.prompts))
    warming = [load for load in plan.loads if load.text == first]
    steps = (len(warming) + plan.rounds * len(plan.loads)) * len(engines)
    with Progress(steps) as progress:
        for load in warming:
            for name, engine in engines.items():
                progress.next(f"{group}, warming up, {load.name}: {name}")
                engine.serve(load, plan.prompts[first])
        for index in range(plan.rounds):
            order = list(engines) if index % 2 == 0 else list(engines)[::-1]
            for load in plan.loads:
                for name in order:
                    which = f"round {index + 1} of {plan.rounds}"
                    progress.next(f"{group}, {which}, {load.name}: {name}")
                    engines[name].forget()
                    found = engines[name].serve(load, plan.prompts[load.text])
                    # Traces are long, and nothing here reads them.
                    found.trace.clear()
                    by_engine = runs.setdefault(load, {each: [] for each in engines})
                    by_engine[name].append(found)
    return runs


def format_table(record: Mapping[str, Any]) -> str:
    """Return one line for each engine and load."""
    lines = [
        f"{'load':34} {'configuration':28} {'tokens/s':>9} {'ratio to none':>18} {'accepted':>9}"
    ]
    rules = {name: one["rule"] for name, one in record["configurations"].items()}
    for row in record["results"]:
        load = Phase(row["concurrency"], row["category"], row["temperature"]).name
        length = row["acceptance_length"]
        name = row["configuration"]
        lines.append(
            f"{load:34} {name:28} {row['tokens_per_s']['median']:9.1f} "
            f"{Summary(**row['to_none'])!s:>18} {'-' if length is None else f'{length:.2f}':>9}"
            f"{note_on_rule(rules.get(name))}"
        )
    for row in record["best"]:
        load = Phase(row["concurrency"], row["category"], row["temperature"]).name
        lines.append(f"best of {load}: {row['configuration']}, ratio to none {row['to_none']:.2f}")
    return "\n".join(lines)


def _to_copy(record: Mapping[str, Any], configurations: Sequence[Configuration]) -> str:
    """Return the options of the best configurations, as they were given."""
    best = {row["configuration"] for row in record["best"]}
    return "\n".join(
        f"{one.name}: --speculative-config {shlex.quote(json.dumps(dict(one.spec)))}"
        for one in configurations
        if one.name in best
    )
