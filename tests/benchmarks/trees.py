"""``benchmarks trees``: what trees are worth beside chains, and how fast they are here.

Chains and trees verify as many rows, by the same rule and with the same noise, so a sampled request
has the same text with both. Beside them, an engine chooses K among both. Engines live in this
process and take turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from examples.zoo import evaluate
from tests.benchmarks import trees_plan
from tests.benchmarks.interleaved import OfflineLoad
from tests.benchmarks.timed_engine import TimedEngine
from vllm_ascend_spec.bench import provenance
from vllm_ascend_spec.bench.local_engine import prepare_environment
from vllm_ascend_spec.bench.progress import Progress
from vllm_ascend_spec.bench.stats import Summary, paired_ratio

REQUESTS = ("greedy", "T=0.8")
SHAPES = {"chain": trees_plan.chain, "tree": trees_plan.tree}
WAYS = {**SHAPES, "adaptive": trees_plan.adaptive}
# Of an answer that is timed, and prompts of a round, of each of its requests at least.
MAX_TOKENS, NUM_PROMPTS, LEAST_PROMPTS = 64, 12, 4
# Passes before the first that is measured, in which an engine finds its K.
SETTLING = 2


@dataclass(frozen=True, kw_only=True)
class TreesBenchConfig:
    """What ``benchmarks trees`` measures; see the command's options."""

    methods: Sequence[str]
    timed: Sequence[str]
    rows: Sequence[int]
    batches: Sequence[int]
    rounds: int


def acceptance(method: str, way: str, drafts: int) -> dict[str, float]:
    """Return the tokens per step of one way to draft, on the zoo's prompts."""
    from vllm import LLM

    spec, section = SHAPES[way](method, drafts)
    options = {"ascend_spec": {"draft_length": "fixed", **section}}
    engine = {**evaluate.ENGINE, "additional_config": options}
    llm = LLM(model=trees_plan.target_of(method), speculative_config=spec, **engine)
    found = {
        name: evaluate.measure(llm, evaluate.REQUESTS[name])["tokens_per_step"] for name in REQUESTS
    }
    llm.llm_engine.engine_core.shutdown()
    return found


def speed(method: str, batch: int, rows: Sequence[int], rounds: int) -> list[dict[str, Any]]:
    """Return tokens per second of chains, trees and the choice at one batch size, in turns."""
    load = OfflineLoad(
        prompts=evaluate.PROMPTS[: max(NUM_PROMPTS, LEAST_PROMPTS * batch)],
        max_tokens=MAX_TOKENS,
        batch=batch,
    )
    # A chain of a few drafts is often the fastest.
    most = trees_plan.METHODS[method][1] or max(rows)
    ways = [
        ("chain", drafts)
        for drafts in sorted({min(k, most) for k in (3, 5, *(n - 1 for n in rows))})
    ]
    ways += [(way, count - 1) for way in ("tree", "adaptive") for count in rows]
    engines, chosen = [], []
    for way, drafts in ways:
        spec, section = WAYS[way](method, drafts)
        engine = TimedEngine(trees_plan.target_of(method), load, spec, parts={}, section=section)
        engine.start()
        for _ in range(SETTLING if way == "adaptive" else 0):
            engine.generate(record=False)
        engines.append(engine)
        chosen.append(count_choices(engine.scheduler))
    for _ in range(rounds):
        for engine in engines:
            engine.generate(record=True)
    for engine in engines:
        engine.llm.llm_engine.engine_core.shutdown()
    best = max(
        (engine for engine, (way, _) in zip(engines, ways, strict=True) if way == "chain"),
        key=lambda engine: Summary.of(engine.tokens_per_s).median,
    )
    return [
        {
            "method": method,
            "batch": batch,
            "way": way,
            "drafts": drafts,
            "tokens_per_s": Summary.of(engine.tokens_per_s).as_dict(),
            "of_the_best_chain": paired_ratio(engine.tokens_per_s, best.tokens_per_s).as_dict(),
            "ms_per_step": Summary.of(engine.ms_per_step).as_dict(),
            "steps_by_k": {str(k): steps for k, steps in sorted(counted.items())},
            "steps_in_trees": share_of(trees_of(engine.scheduler, way, drafts), counted),
        }
        for engine, (way, drafts), counted in zip(engines, ways, chosen, strict=True)
    ]


def trees_of(scheduler: Any, way: str, drafts: int) -> Collection[int]:
    """Return which K of an engine are trees."""
    if way in SHAPES:
        return (drafts,) if way == "tree" else ()
    return scheduler.chooser.trees


def share_of(some: Collection[int], counted: Counter[int]) -> float:
    """Return the share of steps with one of some K."""
    return sum(counted[k] for k in some) / counted.total()


def count_choices(scheduler: Any) -> Counter[int]:
    """Count the steps of an engine by K from now on."""
    choose, counted = scheduler.choose_k, Counter[int]()

    def watched(requests: int) -> tuple[int, str]:
        k, reason = choose(requests)
        counted[k] += 1
        return k, reason

    scheduler.choose_k = watched
    return counted


def run(plan: TreesBenchConfig, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run the engines in turn and return the record; ``tell`` prints its tables."""
    prepare_environment()
    worth: list[dict[str, Any]] = []
    with Progress(len(plan.methods) * len(plan.rows) * len(SHAPES)) as progress:
        for method in plan.methods:
            for rows in plan.rows:
                row: dict[str, Any] = {"method": method, "rows": rows}
                for way in SHAPES:
                    progress.next(f"{method}, {rows} rows, {way}")
                    row[way] = acceptance(method, way, rows - 1)
                worth.append(row)
    fast: list[dict[str, Any]] = []
    with Progress(len(plan.timed) * len(plan.batches)) as progress:
        for method in plan.timed:
            for batch in plan.batches:
                progress.next(f"{method}, batch {batch}")
                fast += speed(method, batch, plan.rows, plan.rounds)
    tell(format_tables(worth, fast))
    return {
        "benchmark": "trees",
        "provenance": provenance.collect(),
        "plan": {
            "prompts": len(evaluate.PROMPTS),
            "max_tokens": evaluate.MAX_TOKENS,
            "rounds": plan.rounds,
            "timed_prompts": {"at_least": NUM_PROMPTS, "per_request": LEAST_PROMPTS},
        },
        "tokens_per_step": worth,
        "speed": fast,
    }


def format_tables(worth: Sequence[Mapping[str, Any]], fast: Sequence[Mapping[str, Any]]) -> str:
    """Return a line for each method and number of rows, then one for each engine."""
    lines = [f"{'method':12} {'rows':>4}" + "".join(f"{r + ', chain, tree':>24}" for r in REQUESTS)]
    for row in worth:
        cells = (f"{row['chain'][r]:8.2f} {row['tree'][r]:8.2f}" for r in REQUESTS)
        lines.append(f"{row['method']:12} {row['rows']:4}" + "".join(f"{c:>24}" for c in cells))
    lines.append(
        f"\n{'method':12} {'batch':>5} {'way':8} {'drafts':>6} {'tokens/s':>9} {'ratio':>6} "
        f"{'trees':>6}"
    )
    lines += [
        f"{row['method']:12} {row['batch']:5} {row['way']:8} {row['drafts']:6} "
        f"{row['tokens_per_s']['median']:9.1f} {row['of_the_best_chain']['median']:6.2f} "
        f"{row['steps_in_trees']:6.0%}"
        for row in fast
    ]
    return "\n".join(lines)
