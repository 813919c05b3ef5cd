"""``bench accuracy --lm-eval``: run lm-evaluation-harness tasks with and without speculation.

lm-eval is not a dependency, because it brings a hundred megabytes. The tasks' data has to be on
this machine; a task may name local files, and a folder may hold the user's own tasks.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vllm_ascend_spec.bench import privacy, provenance
from vllm_ascend_spec.bench.local_engine import end_engines, engine_arguments, prepare_environment
from vllm_ascend_spec.bench.progress import Progress
from vllm_ascend_spec.bench.sweep_configurations import Configuration
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.metrics.rule import note_on_rule, rule_from_engine

OPTION = "--lm-eval"
# The version that this was tested with.
OLDEST = "0.4.13"
# Otherwise an unreachable hub is asked again and again. Setting 0 allows downloads.
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}


@dataclass(frozen=True, kw_only=True)
class LmEvalConfig:
    """What is compared; see :class:`vllm_ascend_spec.bench.accuracy.AccuracyConfig`.

    Attributes:
        tasks: lm-eval's names.
        folder: folder of further tasks; None for lm-eval's own only.
    """

    model: str
    configurations: Sequence[Configuration]
    tasks: Sequence[str]
    folder: Path | None
    concurrency: int
    tolerance: float
    compiled: bool
    device: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


def require(names: str) -> None:
    """Check that lm-eval is installed, and not too old for what is called here.

    Raises:
        ConfigError: it is not.
    """
    if importlib.util.find_spec("lm_eval") is None:
        raise ConfigError(OPTION, names, "lm-eval is not installed; pip install lm-eval")
    from lm_eval.tasks import TaskManager

    if not hasattr(TaskManager, "load"):
        raise ConfigError(OPTION, names, f"lm-eval is too old; valid: {OLDEST} and later")


def run(plan: LmEvalConfig, tell: Callable[[str], None]) -> dict[str, Any]:
    """Evaluate the engines one after another and return the record.

    Args:
        plan: what is compared.
        tell: prints the table.

    Raises:
        ConfigError: a task is not there, or its data is not.
    """
    prepare_environment()
    for name, value in OFFLINE.items():
        os.environ.setdefault(name, value)
    manager = load_tasks(plan.tasks, plan.folder)
    record: dict[str, Any] = {
        "benchmark": "accuracy",
        "provenance": provenance.collect(),
        "plan": {
            "model": privacy.path(plan.model),
            "device": plan.device,
            "lm_eval": list(plan.tasks),
            "concurrency": plan.concurrency,
            "tolerance": plan.tolerance,
            "compiled": plan.compiled,
            "arguments": dict(plan.arguments),
        },
    }
    with Progress(1 + len(plan.configurations)) as progress:
        progress.next("without speculation")
        expected, _ = _evaluate(plan, manager, None)
        rows = []
        for one in plan.configurations:
            progress.next(one.name)
            found, rule = _evaluate(plan, manager, one.spec)
            rows += [
                {"configuration": one.name, "rule": rule, **row}
                for row in compare(expected, found, plan.tolerance, plan.arguments["dtype"])
            ]
    record["configurations"] = {one.name: privacy.options(one.spec) for one in plan.configurations}
    record["results"] = rows
    record["passed"] = all(row["passed"] for row in rows)
    tell(format_table(record))
    return record


def load_tasks(names: Sequence[str], folder: Path | None) -> Any:
    """Load tasks with their data and return lm-eval's ``TaskManager``.

    Raises:
        ConfigError: a task is not there, or its data is not.
    """
    from lm_eval.tasks import TaskManager

    if folder is not None and not folder.is_dir():
        raise ConfigError("--lm-eval-path", str(folder), "is no folder; valid: one with tasks")
    manager = TaskManager(include_path=None if folder is None else str(folder))
    for name in names:
        if name not in manager.all_tasks:
            raise ConfigError(
                OPTION, name, "lm-eval has no such task; `lm-eval ls tasks` lists them"
            )
        try:
            manager.load([name])
        except Exception as error:  # whatever its code, its data and the hub's client raise
            raise ConfigError(
                OPTION,
                name,
                "its data is not on this machine or cannot be read "
                f"({type(error).__name__}: {error}); valid: a task whose data is here",
            ) from None
    return manager


def _evaluate(
    plan: LmEvalConfig, manager: Any, spec: Mapping[str, Any] | None
) -> tuple[dict[str, Any], str | None]:
    """Return lm-eval's results of one engine, and the engine's acceptance rule."""
    from lm_eval import simple_evaluate
    from lm_eval.models.vllm_causallms import VLLM

    arguments = engine_arguments(
        plan.model, spec, most_requests=plan.concurrency, compiled=plan.compiled, counts=True
    )
    arguments |= plan.arguments
    model = VLLM(pretrained=arguments.pop("model"), batch_size="auto", **arguments)
    try:
        rule = rule_from_engine(model.model.get_metrics())
        results = simple_evaluate(
            model=model,
            tasks=list(plan.tasks),
            task_manager=manager,
            log_samples=True,
            bootstrap_iters=0,
        )
    finally:
        left = [model.model]
        del model
        end_engines(left)
    return results, rule


def compare(
    expected: Mapping[str, Any], found: Mapping[str, Any], tolerance: float, dtype: str
) -> list[dict[str, Any]]:
    """Return a row for each metric of each task.

    Args:
        expected: lm-eval's results without speculation.
        found: lm-eval's results with speculation.
        tolerance: by how much a metric may get worse.
        dtype: dtype of the engines; in float32 greedy answers have to be equal.
    """
    rows = []
    for task, metrics in expected["results"].items():
        equal, asked = equal_answers(
            expected["samples"].get(task, ()), found["samples"].get(task, ())
        )
        for metric, without in metrics.items():
            name = metric.partition(",")[0]
            is_figure = isinstance(without, int | float) and not isinstance(without, bool)
            if not is_figure or name.endswith("_stderr") or name == "sample_len":
                continue
            score = found["results"][task][metric]
            is_better_high = expected["higher_is_better"].get(task, {}).get(name, True)
            fall = without - score if is_better_high else score - without
            has_to_be_equal = dtype == "float32" and asked > 0
            rows.append(
                {
                    "task": task,
                    "metric": metric,
                    "score_without": without,
                    "score": score,
                    "fall": round(fall, 6),
                    "equal": equal,
                    "greedy_answers": asked,
                    "passed": fall <= tolerance and (equal == asked or not has_to_be_equal),
                }
            )
    return rows


def equal_answers(
    expected: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]
) -> tuple[int, int]:
    """Count the equal greedy answers and all greedy answers; likelihoods do not count."""
    equal = asked = 0
    for theirs, ours in zip(expected, found, strict=True):
        options = [options_of(request) for request in theirs["arguments"]]
        is_greedy = all(isinstance(one, Mapping) and not is_drawn(one) for one in options)
        if options and is_greedy:
            asked += 1
            equal += theirs["resps"] == ours["resps"]
    return equal, asked


def options_of(arguments: Sequence[Any]) -> Any:
    """Return the options of a generation request; a likelihood request gives no mapping."""
    return arguments[1] if len(arguments) > 1 else None


def is_drawn(options: Mapping[str, Any]) -> bool:
    """Tell whether lm-eval samples the answer to a request with these options."""
    return bool(options.get("do_sample", False) or options.get("temperature", 0))


def format_table(record: Mapping[str, Any]) -> str:
    """Return a line for each metric."""
    lines = [
        f"{'configuration':28} {'task':20} {'metric':24} {'score':>8} {'without':>8} {'equal':>9}"
    ]
    for row in record["results"]:
        equal = f"{row['equal']}/{row['greedy_answers']}" if row["greedy_answers"] else "-"
        verdict = "passed" if row["passed"] else "FAILED"
        lines.append(
            f"{row['configuration']:28} {row['task']:20} {row['metric']:24} {row['score']:8.4f} "
            f"{row['score_without']:8.4f} {equal:>9}  {verdict}{note_on_rule(row['rule'])}"
        )
    return "\n".join(lines)
