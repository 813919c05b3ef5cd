"""``vllm-ascend-spec bench sweep``: its options, and what is run with them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vllm_ascend_spec.bench import jsonl
from vllm_ascend_spec.cli import bench_engine
from vllm_ascend_spec.errors import ConfigError

# Default methods, with the models of examples/zoo.
SPECS = (
    '{"method": "eagle", "model": "examples/zoo/eagle"}',
    '{"method": "draft_model", "model": "examples/zoo/draft"}',
    '{"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 4}',
    '{"method": "suffix"}',
)
LENGTHS = "1,3,5"
# Options for reporting an earlier record; all others are for measuring.
REPORTS = ("record", "html")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for methods, loads and output."""
    bench_engine.add_arguments(parser)
    parser.add_argument(
        "--speculative-config",
        action="append",
        metavar="JSON",
        help="may be repeated; default: eagle, draft_model, ngram and suffix of the zoo",
    )
    parser.add_argument(
        "--num-speculative-tokens",
        metavar="K,K",
        help=f"values of K to try with each config, a list; default without a config: {LENGTHS}",
    )
    parser.add_argument(
        "--prompts",
        type=Path,
        default=Path("examples/zoo/sweep_prompts.jsonl"),
        help="lines of JSON with prompt and category",
    )
    parser.add_argument(
        "--categories", metavar="NAME,NAME", help="categories of prompts to use; default: all"
    )
    parser.add_argument("--num-prompts", type=int, help="prompts of each category; default: all")
    parser.add_argument(
        "--concurrency",
        default="1,4,16",
        help="numbers of clients; each waits for its answer before it asks again, a list",
    )
    parser.add_argument(
        "--temperatures", default="0,0.8", help="sampling temperatures, a list; 0 is greedy"
    )
    parser.add_argument("--max-tokens", type=int, default=64, help="maximum length of an answer")
    parser.add_argument("--rounds", type=int, default=3, help="how often each engine is measured")
    parser.add_argument(
        "--at-once",
        type=int,
        default=6,
        help="engines that run at a time, besides one without speculation",
    )
    parser.add_argument(
        "--record", type=Path, help="measure nothing; make the report of this record"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="file for the report")


def measure(args: argparse.Namespace, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run the sweep, or read an earlier one, and write the report if one is wanted.

    Args:
        args: arguments of the command.
        tell: prints the table of what was measured.

    Raises:
        ConfigError: an option cannot be used.
    """
    from vllm_ascend_spec.bench import sweep

    bench_engine.check_can_be_written("--html", args.html)
    bench_engine.check_can_be_written("--output", args.output)
    record = _read(args) if args.record else sweep.run(make_plan(args), tell)
    if args.html is not None:
        args.html.write_text(_page(args, record), encoding="utf-8")
        sys.stderr.write(f"report: {args.html}\n")
    return record


def make_plan(args: argparse.Namespace) -> Any:
    """Check all options and return the plan.

    Raises:
        ConfigError: naming the option, its value and what is valid.
    """
    from vllm_ascend_spec.bench import closed_loop, sweep

    concurrency = bench_engine.numbers("--concurrency", args.concurrency, int, 1)
    temperatures = bench_engine.numbers("--temperatures", args.temperatures, float, 0)
    for option, value in (
        ("--rounds", args.rounds),
        ("--max-tokens", args.max_tokens),
        ("--at-once", args.at_once),
        ("--num-prompts", 1 if args.num_prompts is None else args.num_prompts),
    ):
        if value < 1:
            raise ConfigError(option, value, "valid: 1 and more")
    prompts = _prompts(args, max(concurrency))
    configurations = _configurations(args)
    device = bench_engine.resolve(args, [one.spec for one in configurations], max(concurrency))
    texts = [text for found in prompts.values() for text in found]
    longest = closed_loop.longest_answer(args.max_tokens)
    bench_engine.check_prompts(args, texts, "--prompts", longest)
    return sweep.SweepConfig(
        model=args.model,
        configurations=configurations,
        prompts=prompts,
        concurrency=concurrency,
        temperatures=temperatures,
        max_tokens=args.max_tokens,
        rounds=args.rounds,
        compiled=args.compiled,
        at_once=args.at_once,
        device=device,
        arguments=bench_engine.engine_arguments(args),
    )


def _prompts(args: argparse.Namespace, clients: int) -> dict[str, list[str]]:
    """Read the prompts; each category needs at least one for each client."""
    categories = None if args.categories is None else args.categories.split(",")
    prompts = jsonl.read_prompts("--prompts", args.prompts, categories, args.num_prompts)
    for category, texts in prompts.items():
        if clients > len(texts):
            raise ConfigError(
                "--concurrency",
                args.concurrency,
                f'category "{category}" has {len(texts)} prompts, and each is asked once; '
                f"valid: up to {len(texts)}",
            )
    return prompts


def _configurations(args: argparse.Namespace) -> list[Any]:
    """Combine every method with every K."""
    from vllm_ascend_spec.bench.sweep_configurations import cross

    lengths = args.num_speculative_tokens
    if lengths is None and args.speculative_config is None:
        lengths = LENGTHS
    drafts = None
    if lengths is not None:
        drafts = bench_engine.numbers("--num-speculative-tokens", lengths, int, 1)
    return cross(bench_engine.read_specs(args.speculative_config or SPECS), drafts)


def _read(args: argparse.Namespace) -> dict[str, Any]:
    """Read a record that ``bench sweep`` wrote.

    Raises:
        ConfigError: it is not such a record, or other options were given too.
    """
    path: Path = args.record
    _require_no_measures(args)
    if args.html is None:
        raise ConfigError("--record", str(path), "needs --html FILE, where its report goes")
    return bench_engine.read_record(path, "sweep")


def _require_no_measures(args: argparse.Namespace) -> None:
    """Reject options that say what to measure.

    Raises:
        ConfigError: naming all of them.
    """
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    defaults = vars(parser.parse_args([]))
    names = [n for n in defaults if n not in REPORTS and getattr(args, n) != defaults[n]]
    if names:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        problem = "has no effect" if len(names) == 1 else "have no effect"
        values = ", ".join(str(getattr(args, name)) for name in names)
        raise ConfigError(options, values, f"{problem} with --record")


def _page(args: argparse.Namespace, record: dict[str, Any]) -> str:
    """Return the report.

    Raises:
        ConfigError: an earlier record has another structure.
    """
    from vllm_ascend_spec.bench import sweep_page

    try:
        return sweep_page.page(record)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        if args.record is None:
            raise
        raise ConfigError(
            "--record",
            str(args.record),
            f"is not a record of this version's bench sweep ({type(error).__name__}: {error})",
        ) from None
