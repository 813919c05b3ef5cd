"""``benchmarks propose``: measure drafting overhead, that is, drafting without the draft model.

A method's own share is its time outside the model's forward pass and output layer: it prepares
inputs and metadata, looks up, copies and picks tokens. Engines of all configurations live in this
process and take turns, so the machine's drift affects them alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.interleaved import OfflineLoad
from tests.benchmarks.timed_engine import TimedEngine
from vllm_ascend_spec.bench import privacy, provenance
from vllm_ascend_spec.bench.local_engine import prepare_environment
from vllm_ascend_spec.bench.progress import Progress
from vllm_ascend_spec.bench.stats import Summary

DRAFT = "draft, all"
# The draft model's own work. Our loop calls a Llama draft's kernels through ``direct``. EAGLE-3
# also joins the states of several layers, DFlash also writes the keys and values of the context.
OF_THE_MODEL: dict[str, tuple[str, str]] = {
    "forward": ("runner.drafter.model", "forward"),
    "logits": ("runner.drafter.model.logits_processor", "forward"),
    "forward, directly": ("runner.drafter.steps.direct", "forward"),
    "logits, directly": ("runner.drafter.steps.direct", "logits"),
    "heads": ("runner.drafter.heads", "forward"),
    "joined states": ("runner.drafter.model", "combine_hidden_states"),
    "keys of the text": ("runner.drafter.model", "precompute_and_store_context_kv"),
}
PARTS = {DRAFT: ("runner.drafter", "draft"), **OF_THE_MODEL}


@dataclass(frozen=True, kw_only=True)
class ProposeBenchConfig:
    """What ``benchmarks propose`` measures; see the command's options."""

    model: str
    speculative_configs: Sequence[Mapping[str, Any]]
    loads: Sequence[OfflineLoad]
    rounds: int
    compiled: bool


def figures(engine: TimedEngine) -> dict[str, Any]:
    """Return the figures of one engine.

    Returns:
        ``draft_ms``, the part of ``ms_per_step`` spent drafting; ``model_ms``, the part of that
        spent in the draft model; ``own_share``, the rest of ``draft_ms`` / ``ms_per_step``.
    """
    whole = Summary.of(engine.ms_per_step)
    mean = sum(engine.ms_per_step) / len(engine.ms_per_step)
    draft, model = engine.ms_of(DRAFT), sum(map(engine.ms_of, OF_THE_MODEL))
    return {
        "batch": engine.load.batch,
        "ms_per_step": whole.as_dict(),
        "draft_ms": round(draft, 3),
        "model_ms": round(model, 3),
        "own_share": round((draft - model) / mean, 4),
        "tokens_per_engine_step": round(engine.tokens_per_engine_step, 3),
    }


def run(plan: ProposeBenchConfig, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run the engines in turn and return the record; ``tell`` prints its table."""
    prepare_environment()
    engines: list[tuple[str, TimedEngine]] = []
    with Progress(len(plan.speculative_configs) * len(plan.loads)) as progress:
        for spec in plan.speculative_configs:
            for load in plan.loads:
                progress.next(f"loading {spec['method']}, batch {load.batch}")
                engine = TimedEngine(plan.model, load, spec, parts=PARTS, compiled=plan.compiled)
                engine.start()
                engines.append((str(spec["method"]), engine))
    with Progress(plan.rounds * len(engines)) as progress:
        for index in range(plan.rounds):
            for name, engine in engines:
                what = f"{name}, batch {engine.load.batch}"
                progress.next(f"round {index + 1} of {plan.rounds}: {what}")
                engine.generate(record=True)
    results = [{"method": name, **figures(engine)} for name, engine in engines]
    record = {
        "benchmark": "propose",
        "provenance": provenance.collect(),
        "plan": {
            "model": privacy.path(plan.model),
            "speculative_configs": [privacy.options(s) for s in plan.speculative_configs],
            "prompts": [len(load.prompts) for load in plan.loads],
            "max_tokens": plan.loads[0].max_tokens,
            "temperature": plan.loads[0].temperature,
            "rounds": plan.rounds,
            "compiled": plan.compiled,
        },
        "results": results,
    }
    tell(format_table(results))
    return record


def format_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Return one line for each engine."""
    lines = [f"{'method':22} {'batch':>5} {'ms/step':>8} {'draft':>8} {'model':>8} {'own':>7}"]
    for row in results:
        lines.append(
            f"{row['method']:22} {row['batch']:5} {row['ms_per_step']['median']:8.2f} "
            f"{row['draft_ms']:8.2f} {row['model_ms']:8.2f} {row['own_share']:7.1%}"
        )
    return "\n".join(lines)
