"""``bench accuracy``: compare answers and scores of tasks with and without speculation.

Greedy answers are compared token for token. Sampled answers may differ; docs/losslessness.md shows
that their distribution is right, so here only their scores are compared.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from vllm_ascend_spec.bench import privacy, provenance
from vllm_ascend_spec.bench.differences import Difference, argmax, first_difference, judge
from vllm_ascend_spec.bench.local_engine import build_engine, end_engines, prepare_environment
from vllm_ascend_spec.bench.progress import Progress
from vllm_ascend_spec.bench.sweep_configurations import Configuration
from vllm_ascend_spec.bench.tasks import Task, mean
from vllm_ascend_spec.metrics.rule import note_on_rule, rule_from_engine

# Chance explains a drop in a sampled score up to this many standard errors.
STANDARD_ERRORS = 3.0


@dataclass(frozen=True, kw_only=True)
class AccuracyConfig:
    """What ``bench accuracy`` compares; see the command's options.

    Attributes:
        model: the target.
        configurations: each is compared with no speculation.
        tasks: tasks to answer.
        temperatures: 0 is greedy.
        max_tokens: limit of an answer whose task sets none.
        samples: number of sampled answers per task, each with its own seed.
        concurrency: requests per batch.
        tolerance: by how much a score may drop.
        rounding: the largest gap that rounding explains.
        compiled: whether to use torch.compile.
        device: the device to run on.
        arguments: further arguments of ``LLM``.
    """

    model: str
    configurations: Sequence[Configuration]
    tasks: Sequence[Task]
    temperatures: Sequence[float]
    max_tokens: int
    samples: int
    concurrency: int
    tolerance: float
    rounding: float
    compiled: bool
    device: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """One answer.

    Attributes:
        prompt: token ids of the prompt.
        tokens: token ids of the answer.
        score: score of the answer's text.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    score: float


def run(plan: AccuracyConfig, tell: Callable[[str], None]) -> dict[str, Any]:
    """Ask the engines one after another and return the record; ``passed`` is the verdict.

    Args:
        plan: what is compared.
        tell: prints the table.
    """
    prepare_environment()
    record: dict[str, Any] = {
        "benchmark": "accuracy",
        "provenance": provenance.collect(),
        "plan": _plan(plan),
    }
    engines: list[Any] = []
    progress = Progress((1 + len(plan.configurations)) * (1 + len(plan.temperatures)))
    try:
        progress.next("loading none")
        engines.append(_start(plan, None))
        expected = {}
        for temperature in plan.temperatures:
            progress.next(f"none, T={temperature:g}")
            expected[temperature] = answers_of(engines[0], plan, temperature)
        rows = []
        for one in plan.configurations:
            progress.next(f"loading {one.name}")
            engines.append(_start(plan, one.spec))
            rule = rule_from_engine(engines[-1].get_metrics())
            for temperature in plan.temperatures:
                progress.next(f"{one.name}, T={temperature:g}")
                found = answers_of(engines[-1], plan, temperature)
                row = compare(plan, engines[0], temperature, expected[temperature], found)
                rows.append({"configuration": one.name, "rule": rule, **row})
            end_engines([engines.pop()])
    finally:
        progress.close()
        end_engines(engines)
    record["configurations"] = {one.name: privacy.options(one.spec) for one in plan.configurations}
    record["results"] = rows
    record["passed"] = all(row["passed"] for row in rows)
    tell(format_table(record))
    return record


def _plan(plan: AccuracyConfig) -> dict[str, Any]:
    return {
        "model": privacy.path(plan.model),
        "device": plan.device,
        "tasks": len(plan.tasks),
        "temperatures": list(plan.temperatures),
        "max_tokens": plan.max_tokens,
        "samples": plan.samples,
        "concurrency": plan.concurrency,
        "tolerance": plan.tolerance,
        "rounding": plan.rounding,
        "compiled": plan.compiled,
        "arguments": dict(plan.arguments),
    }


def _start(plan: AccuracyConfig, spec: Mapping[str, Any] | None) -> Any:
    return build_engine(
        plan.model,
        spec,
        most_requests=plan.concurrency,
        section=None,
        compiled=plan.compiled,
        counts=True,
        others=plan.arguments,
    )


def answers_of(llm: Any, plan: AccuracyConfig, temperature: float) -> list[list[Answer]]:
    """Return the answers to each task: one if greedy, else ``plan.samples``."""
    times = plan.samples if temperature else 1
    asked = [(task, seed) for task in plan.tasks for seed in range(times)]
    outputs = llm.generate(
        [task.prompt for task, _ in asked],
        [_parameters(plan, task, temperature, seed) for task, seed in asked],
        use_tqdm=False,
    )
    answers = [
        Answer(
            tuple(output.prompt_token_ids),
            tuple(output.outputs[0].token_ids),
            task.score(output.outputs[0].text),
        )
        for (task, _), output in zip(asked, outputs, strict=True)
    ]
    return [answers[first : first + times] for first in range(0, len(answers), times)]


def _parameters(plan: AccuracyConfig, task: Task, temperature: float, seed: int) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    choices = StructuredOutputsParams(choice=list(task.choices)) if task.choices else None
    return SamplingParams(
        temperature=temperature,
        max_tokens=task.max_tokens or plan.max_tokens,
        stop=list(task.stop) or None,
        seed=seed if temperature else None,
        structured_outputs=choices,
    )


def compare(
    plan: AccuracyConfig,
    none: Any,
    temperature: float,
    expected: Sequence[Sequence[Answer]],
    found: Sequence[Sequence[Answer]],
) -> dict[str, Any]:
    """Compare the answers with speculation to those without.

    Args:
        plan: what is compared.
        none: the engine without speculation, which rates the tokens that differ.
        temperature: temperature of the answers.
        expected: each task's answers without speculation.
        found: each task's answers with speculation.
    """
    differences: list[Difference] = []
    if temperature == 0:
        for task, (theirs,), (ours,) in zip(plan.tasks, expected, found, strict=True):
            place = first_difference(ours.tokens, theirs.tokens)
            if place is not None:
                tokens = (_token(theirs.tokens, place), _token(ours.tokens, place))
                likely = argmax(none, theirs.prompt, theirs.tokens[:place], tokens)
                differences.append(judge(task.line, place, tokens, likely, plan.rounding))
    fall = fall_of_score(
        [mean([answer.score for answer in answers]) for answers in expected],
        [mean([answer.score for answer in answers]) for answers in found],
        is_drawn=temperature > 0,
    )
    faults = [one for one in differences if not one.is_rounding]
    return {
        "temperature": temperature,
        "tasks": len(plan.tasks),
        "equal": len(plan.tasks) - len(differences) if temperature == 0 else None,
        "differences": [asdict(one) for one in differences],
        **fall,
        "passed": not faults and fall["fall"] <= plan.tolerance + fall["chance"],
    }


def _token(tokens: Sequence[int], place: int) -> int | None:
    return tokens[place] if place < len(tokens) else None


def fall_of_score(
    without: Sequence[float], with_: Sequence[float], *, is_drawn: bool
) -> dict[str, float]:
    """Return both scores, the drop between them, and how large a drop chance could cause.

    Args:
        without: score of each task without speculation.
        with_: score of each task with speculation.
        is_drawn: whether answers are sampled; greedy ones leave nothing to chance.
    """
    changes = [a - b for a, b in zip(without, with_, strict=True)]
    chance = 0.0
    if is_drawn and len(changes) > 1:
        chance = STANDARD_ERRORS * statistics.stdev(changes) / math.sqrt(len(changes))
    return {
        "score_without": round(mean(without), 4),
        "score": round(mean(with_), 4),
        "fall": round(mean(changes), 4),
        "chance": round(chance, 4),
    }


def format_table(record: Mapping[str, Any]) -> str:
    """Return a line for each engine and temperature, and one for each difference."""
    lines = [f"{'configuration':28} {'T':>4} {'equal':>9} {'score':>7} {'without':>8}  verdict"]
    for row in record["results"]:
        equal = "-" if row["equal"] is None else f"{row['equal']}/{row['tasks']}"
        verdict = "passed" if row["passed"] else "FAILED"
        lines.append(
            f"{row['configuration']:28} {row['temperature']:4g} {equal:>9} {row['score']:7.3f} "
            f"{row['score_without']:8.3f}  {verdict}{note_on_rule(row['rule'])}"
        )
        lines += [f"  {_told(one)}" for one in row["differences"]]
    return "\n".join(lines)


def _told(one: Mapping[str, Any]) -> str:
    why = "rounding" if one["is_rounding"] else "no rounding"
    gap, top2 = "not comparable", ""
    if one["gap"] is not None:
        gap = f"{abs(one['gap']):.4f} {'less' if one['gap'] >= 0 else 'more'} likely"
    if one["top2_gap"] is not None:
        top2 = f"; the two most likely are {one['top2_gap']:.4f} apart"
    return (
        f"task {one['task']}: token {one['position']} is {one['actual']} instead of "
        f"{one['expected']}, {gap}{top2}: {why}"
    )
