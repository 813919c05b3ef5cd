"""``vllm-ascend-spec bench accuracy``: its options, and what is run with them."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vllm_ascend_spec.bench.tasks import read_tasks
from vllm_ascend_spec.cli import bench_engine
from vllm_ascend_spec.errors import ConfigError

SPECS = ('{"method": "eagle", "model": "examples/zoo/eagle", "num_speculative_tokens": 3}',)
TASKS = Path("examples/zoo/tasks.jsonl")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the tasks and for what counts as a failure."""
    bench_engine.add_arguments(parser)
    parser.add_argument(
        "--speculative-config",
        action="append",
        metavar="JSON",
        help=f"may be repeated; default: {SPECS[0]}",
    )
    parser.add_argument("--tasks", type=Path, help=f"file of tasks; default: {TASKS}")
    parser.add_argument(
        "--lm-eval",
        metavar="TASK,TASK",
        help="use these tasks of lm-eval; their data must be on this machine",
    )
    parser.add_argument(
        "--lm-eval-path", type=Path, metavar="FOLDER", help="folder with more tasks for lm-eval"
    )
    parser.add_argument("--temperatures", help="sampling temperatures, a list; default 0, greedy")
    parser.add_argument("--samples", type=int, help="sampled answers per task; default 4")
    parser.add_argument("--max-tokens", type=int, help="maximum length of an answer; default 64")
    parser.add_argument("--concurrency", type=int, default=8, help="requests in a batch")
    parser.add_argument("--tolerance", type=float, default=0.0, help="by how much a score may fall")
    parser.add_argument(
        "--rounding",
        type=float,
        help="difference of log-probabilities that counts as rounding; default "
        "0 in float32, 0.05 in float16, 0.25 in bfloat16",
    )


def measure(args: argparse.Namespace, tell: Callable[[str], None]) -> dict[str, Any]:
    """Compare, and return the record; ``tell`` prints its table.

    Raises:
        ConfigError: an option cannot be used.
    """
    bench_engine.check_can_be_written("--output", args.output)
    if args.lm_eval is not None:
        return _with_lm_eval(args, tell)
    from vllm_ascend_spec.bench import accuracy

    return accuracy.run(make_plan(args), tell)


def _common(args: argparse.Namespace) -> tuple[list[Any], str]:
    """Check the options of both kinds of tasks; return configurations and the device's name."""
    from vllm_ascend_spec.bench.sweep_configurations import cross

    if args.concurrency < 1:
        raise ConfigError("--concurrency", args.concurrency, "valid: 1 and more")
    if not 0 <= args.tolerance <= 1:
        raise ConfigError("--tolerance", args.tolerance, "valid: 0 to 1, as scores are")
    found = cross(bench_engine.read_specs(args.speculative_config or SPECS), None)
    return found, bench_engine.resolve(args, [one.spec for one in found], args.concurrency)


def make_plan(args: argparse.Namespace) -> Any:
    """Check all options and return the plan.

    Raises:
        ConfigError: naming the option, its value and what is valid.
    """
    from vllm_ascend_spec.bench import accuracy
    from vllm_ascend_spec.bench.differences import ROUNDING

    if args.lm_eval_path is not None:
        raise ConfigError("--lm-eval-path", str(args.lm_eval_path), "needs --lm-eval TASK")
    temperatures = bench_engine.numbers("--temperatures", args.temperatures or "0", float, 0)
    if args.samples is not None and not any(temperatures):
        raise ConfigError(
            "--samples", args.samples, "has no effect on greedy answers; add --temperatures 0.8"
        )
    samples = 4 if args.samples is None else args.samples
    args.max_tokens = 64 if args.max_tokens is None else args.max_tokens
    for option, value in (("--samples", samples), ("--max-tokens", args.max_tokens)):
        if value < 1:
            raise ConfigError(option, value, "valid: 1 and more")
    rounding = ROUNDING[args.dtype] if args.rounding is None else args.rounding
    if not (math.isfinite(rounding) and rounding >= 0):
        raise ConfigError("--rounding", rounding, "valid: 0 and more")
    tasks = read_tasks("--tasks", args.tasks or TASKS)
    configurations, device = _common(args)
    limits = [task.max_tokens for task in tasks]
    bench_engine.check_prompts(
        args, [task.prompt for task in tasks], "--tasks", args.max_tokens, limits
    )
    return accuracy.AccuracyConfig(
        model=args.model,
        configurations=configurations,
        tasks=tasks,
        temperatures=temperatures,
        max_tokens=args.max_tokens,
        samples=samples,
        concurrency=args.concurrency,
        tolerance=args.tolerance,
        rounding=rounding,
        compiled=args.compiled,
        device=device,
        arguments=bench_engine.engine_arguments(args),
    )


def _with_lm_eval(args: argparse.Namespace, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run tasks of lm-eval; reject options that are only for task files."""
    from vllm_ascend_spec.bench import lm_eval

    own = ("tasks", "temperatures", "samples", "max_tokens", "rounding")
    for name in own:
        if getattr(args, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(
                option,
                str(getattr(args, name)),
                "has no effect with --lm-eval, whose tasks set it; leave it out",
            )
    names = args.lm_eval.split(",")
    lm_eval.require(args.lm_eval)
    configurations, device = _common(args)
    return lm_eval.run(
        lm_eval.LmEvalConfig(
            model=args.model,
            configurations=configurations,
            tasks=names,
            folder=args.lm_eval_path,
            concurrency=args.concurrency,
            tolerance=args.tolerance,
            compiled=args.compiled,
            device=device,
            arguments=bench_engine.engine_arguments(args),
        ),
        tell,
    )
