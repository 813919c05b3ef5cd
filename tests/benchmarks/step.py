"""``benchmarks step``: measure where the time of an engine step goes, for several configurations.

It compares no speculation, speculation with vLLM's own draft loop (before), and with ours (after).
Methods without a draft model have no draft loop, so only two configurations remain. An optional one
is adaptive but held at K=0: it shows what idle speculation costs. Another one calls the draft
through its modules where the CPU's loop calls its kernels directly. These engines live in this
process.

A peer, if one is given, is the vLLM of another environment, in its own process. All take turns, so
the machine's drift affects them alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.interleaved import OfflineLoad
from tests.benchmarks.peer_engine import PeerEngine
from tests.benchmarks.timed_engine import TimedEngine
from vllm_ascend_spec.bench import privacy, provenance
from vllm_ascend_spec.bench.local_engine import engine_arguments, prepare_environment
from vllm_ascend_spec.bench.peer import Peer
from vllm_ascend_spec.bench.progress import Progress
from vllm_ascend_spec.bench.stats import Summary, paired_ratio
from vllm_ascend_spec.config.spec_options import check_method, with_underscores
from vllm_ascend_spec.methods.loops.vllm.module_steps import ModuleSteps
from vllm_ascend_spec.methods.registry import all_methods
from vllm_ascend_spec.metrics.rule import note_on_rule

BEFORE, AFTER, NONE = "stock draft loop", "our draft loop", "none"
WITHOUT_LOOP = "speculation"
IDLE = "adaptive at K=0"
MODULES = "our draft loop through modules"
SECTIONS: dict[str, dict[str, Any]] = {
    BEFORE: {"draft_loop": "stock"},
    AFTER: {"draft_loop": "auto"},
    IDLE: {"draft_length": "adaptive"},
}
# Part -> (object, method). Parts inside another are indented in the table.
PARTS: dict[str, tuple[str, str]] = {
    "schedule": ("scheduler", "schedule"),
    "prepare inputs": ("runner", "_prepare_inputs"),
    "attention metadata": ("runner", "_build_attention_metadata"),
    "target forward": ("runner", "_model_forward"),
    "target logits": ("runner.model", "compute_logits"),
    "sample or verify": ("runner", "_sample"),
    "bookkeeping": ("runner", "_bookkeeping_sync"),
    "draft, all": ("runner", "propose_draft_token_ids"),
    "- draft inputs": ("runner.drafter", "set_inputs_first_pass"),
    "- draft metadata": ("runner.drafter", "build_per_group_and_layer_attn_metadata"),
    "- draft forward": ("runner.drafter.model", "forward"),
    "- draft forward, directly": ("runner.drafter.steps.direct", "forward"),
    "- draft logits, argmax": ("runner.drafter", "_greedy_sample"),
    "take up the step": ("scheduler", "update_from_output"),
}


@dataclass(frozen=True)
class StepBenchConfig:
    """What ``benchmarks step`` measures; see the command's options."""

    model: str
    speculative_config: Mapping[str, Any]
    load: OfflineLoad
    rounds: int
    compiled: bool
    idle: bool = False
    modules: bool = False
    peer: Peer | None = None


def figures(engine: TimedEngine | PeerEngine) -> dict[str, Any]:
    """Return the figures of one configuration."""
    parts = {part: round(engine.ms_of(part), 3) for part in PARTS if part in engine.clock.seconds}
    whole = Summary.of(engine.ms_per_step)
    top = sum(ms for part, ms in parts.items() if not part.startswith("-"))
    return {
        "rule": engine.rule,
        "tokens_per_s": Summary.of(engine.tokens_per_s).as_dict(),
        "ms_per_step": whole.as_dict(),
        "parts_ms": {**parts, "rest": round(whole.median - top, 3)},
        "tokens_per_engine_step": round(engine.tokens_per_engine_step, 3),
    }


def configurations(
    speculative_config: Mapping[str, Any], *, idle: bool = False, modules: bool = False
) -> tuple[str, ...]:
    """Return the configurations to compare, no speculation first."""
    spec = with_underscores(speculative_config)
    has_loop = check_method(spec, all_methods()).has_draft_loop
    ours = (MODULES, AFTER) if modules else (AFTER,)
    drafting = (BEFORE, *ours) if has_loop else (WITHOUT_LOOP,)
    return (NONE, *((IDLE,) if idle else ()), *drafting)


def run(plan: StepBenchConfig, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run the configurations in turn and return the record; ``tell`` prints its table."""
    prepare_environment()
    with ExitStack() as stack:
        record = _run(plan, _start(plan, stack))
    tell(format_table(record))
    return record


def _start(plan: StepBenchConfig, stack: ExitStack) -> dict[str, TimedEngine | PeerEngine]:
    engines: dict[str, TimedEngine | PeerEngine] = {}
    names = configurations(plan.speculative_config, idle=plan.idle, modules=plan.modules)
    progress = Progress(len(names) + (plan.peer is not None))
    for name in names:
        progress.next(f"loading {name}")
        engine = TimedEngine(
            plan.model,
            plan.load,
            None if name == NONE else plan.speculative_config,
            parts=PARTS,
            section=SECTIONS.get(name),
            compiled=plan.compiled,
        )
        if name == IDLE:
            engine.scheduler.warmup_k = 0
        if name == MODULES:
            engine.runner.drafter.steps = ModuleSteps(engine.runner.drafter)
        engine.start()
        engines[name] = engine
    if plan.peer is not None:
        name = plan.peer.name
        progress.next(f"loading {name}")
        most = max(plan.load.batch, 1)
        arguments = engine_arguments(
            plan.model,
            plan.speculative_config,
            most_requests=most,
            compiled=plan.compiled,
            counts=True,
        )
        engines[name] = stack.enter_context(PeerEngine(plan.peer, arguments, plan.load, PARTS))
        engines[name].start()
    progress.close()
    return engines


def _run(plan: StepBenchConfig, engines: Mapping[str, TimedEngine | PeerEngine]) -> dict[str, Any]:
    with Progress(plan.rounds * len(engines)) as progress:
        for index in range(plan.rounds):
            for name, engine in engines.items():
                progress.next(f"round {index + 1} of {plan.rounds}: {name}")
                engine.generate(record=True)
    ours = engines[AFTER if AFTER in engines else WITHOUT_LOOP]
    record = {
        "benchmark": "step",
        "provenance": provenance.collect(),
        "plan": {
            "model": privacy.path(plan.model),
            "speculative_config": privacy.options(plan.speculative_config),
            "prompts": len(plan.load.prompts),
            "max_tokens": plan.load.max_tokens,
            "batch": plan.load.batch,
            "temperature": plan.load.temperature,
            "rounds": plan.rounds,
            "compiled": plan.compiled,
        },
        "results": {name: figures(engine) for name, engine in engines.items()},
        "speedup": {
            name: paired_ratio(engines[name].tokens_per_s, engines[NONE].tokens_per_s).as_dict()
            for name in engines
            if name != NONE
        },
    }
    if plan.peer is not None:
        theirs = engines[plan.peer.name]
        record["peer"] = {
            "name": plan.peer.name,
            "versions": dict(plan.peer.versions),
            "ours_to_peer": paired_ratio(ours.tokens_per_s, theirs.tokens_per_s).as_dict(),
        }
    return record


def format_table(record: Mapping[str, Any]) -> str:
    """Return milliseconds per step by part, with a column for each configuration."""
    results = record["results"]
    rows = [
        ("ms per step", {name: result["ms_per_step"]["median"] for name, result in results.items()})
    ]
    for part in (*PARTS, "rest"):
        rows.append(
            (part, {name: result["parts_ms"].get(part) for name, result in results.items()})
        )
    ours = results[AFTER if AFTER in results else WITHOUT_LOOP]
    lines = ["".join([" " * 24, *(f"{name:>18}" for name in results)])]
    for part, values in rows:
        cells = ("-" if values[name] is None else f"{values[name]:.2f}" for name in results)
        lines.append("".join([f"{part:24}", *(f"{cell:>18}" for cell in cells)]))
    rates = (f"{result['tokens_per_s']['median']:.0f}" for result in results.values())
    lines.append("".join([f"{'tokens/s':24}", *(f"{rate:>18}" for rate in rates)]))
    lines.append(f"speed-up: {record['speedup']}{note_on_rule(ours['rule'])}")
    if "peer" in record:
        ratio = Summary(**record["peer"]["ours_to_peer"])
        lines.append(f"ours to {record['peer']['name']}: {ratio}")
    return "\n".join(lines)
