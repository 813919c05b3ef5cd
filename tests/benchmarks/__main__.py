"""``python -m tests.benchmarks NAME``: measure parts of the engine; run it in a checkout's root."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks import adaptive_options, trees_plan
from tests.benchmarks.verify import options as verify_options
from vllm_ascend_spec import versions
from vllm_ascend_spec.bench import peer, privacy
from vllm_ascend_spec.bench.privacy import redact
from vllm_ascend_spec.bench.server import stop_servers_on_sigterm
from vllm_ascend_spec.cli import bench
from vllm_ascend_spec.cli.bench_engine import numbers
from vllm_ascend_spec.cli.parsers import CommandParser, unknown
from vllm_ascend_spec.config.engine import EngineOptions
from vllm_ascend_spec.config.json_option import parse_speculative
from vllm_ascend_spec.devices import select
from vllm_ascend_spec.errors import AscendSpecError
from vllm_ascend_spec.hooks.preflight import resolve_engine

PROGRAM = "python -m tests.benchmarks"


def make_parser() -> argparse.ArgumentParser:
    """Describe the benchmarks and their options."""
    parser = CommandParser(prog=PROGRAM, description="Measure parts of the engine.")
    benchmarks = parser.add_subparsers(dest="benchmark", required=True, metavar="NAME")
    verify = benchmarks.add_parser("verify", help="verification kernels against their peers")
    verify_options.add_arguments(verify)
    step = benchmarks.add_parser("step", help="one engine step by its parts, in this process")
    bench.add_common(step)
    step.add_argument("--batch", type=int, default=1)
    step.add_argument("--temperature", type=float, default=0.0)
    step.add_argument("--rounds", type=int, default=3)
    step.add_argument("--compiled", action="store_true", help="with torch.compile")
    step.add_argument(
        "--idle", action="store_true", help="one more engine that could draft, held at K=0"
    )
    step.add_argument(
        "--modules",
        action="store_true",
        help="one more engine that calls the draft through its modules",
    )
    step.add_argument(
        peer.OPTION,
        type=Path,
        metavar="PYTHON",
        help="interpreter of another environment, whose vLLM takes turns with this one",
    )
    step.set_defaults(benchmark_run=run_step)
    propose = benchmarks.add_parser("propose", help="what drafting costs beside the draft model")
    several = f"once or several times; default: {bench.DEFAULT_SPEC}"
    bench.add_common(propose, action="append", default=None, help=several)
    propose.add_argument("--batches", default="1,8", help="concurrent requests, a list")
    propose.add_argument("--temperature", type=float, default=0.0)
    propose.add_argument("--rounds", type=int, default=3)
    propose.add_argument("--compiled", action="store_true", help="with torch.compile")
    propose.set_defaults(benchmark_run=run_propose)
    trees = benchmarks.add_parser("trees", help="trees beside chains, and K chosen among both")
    trees.add_argument("--methods", default=",".join(trees_plan.METHODS), help="a list, or ''")
    trees.add_argument("--timed", default="eagle3,medusa,ngram", help="those that are timed, too")
    trees.add_argument("--rows", default="8,16", help="rows of a request in a step, a list")
    trees.add_argument("--batches", default="1,2,8", help="concurrent requests, a list")
    trees.add_argument("--rounds", type=int, default=5)
    trees.add_argument("--output", type=Path, help="file for the JSON record")
    trees.set_defaults(benchmark_run=run_trees)
    adaptive = benchmarks.add_parser("adaptive", help="K chosen in each step beside fixed ones")
    adaptive_options.add_arguments(adaptive, bench.add_common)
    adaptive.set_defaults(benchmark_run=run_adaptive)
    return parser


def run_step(args: argparse.Namespace) -> int:
    """Run ``step``."""
    from tests.benchmarks import step
    from tests.benchmarks.interleaved import OfflineLoad

    spec = parse_speculative(args.speculative_config)
    resolve_engine(args.model, spec, engine=EngineOptions(device=select.find_device()))
    other = None if args.peer_python is None else peer.find_peer(args.peer_python)
    plan = step.StepBenchConfig(
        model=args.model,
        speculative_config=spec,
        load=OfflineLoad(
            prompts=bench.read_prompts(args.prompts)[: 8 * args.batch],
            max_tokens=args.max_tokens,
            batch=args.batch,
            temperature=args.temperature,
        ),
        rounds=args.rounds,
        compiled=args.compiled,
        idle=args.idle,
        modules=args.modules,
        peer=other,
    )
    return bench.finish(step.run(plan, bench.teller(args.output)), args.output)


def run_propose(args: argparse.Namespace) -> int:
    """Run ``propose``."""
    from tests.benchmarks import propose
    from tests.benchmarks.interleaved import OfflineLoad

    specs = [parse_speculative(text) for text in args.speculative_config or [bench.DEFAULT_SPEC]]
    for spec in specs:
        resolve_engine(args.model, spec, engine=EngineOptions(device=select.find_device()))
    prompts = bench.read_prompts(args.prompts)
    plan = propose.ProposeBenchConfig(
        model=args.model,
        speculative_configs=specs,
        loads=[
            OfflineLoad(
                prompts=prompts[: 8 * batch],
                max_tokens=args.max_tokens,
                batch=batch,
                temperature=args.temperature,
            )
            for batch in numbers("--batches", args.batches, int, 1)
        ],
        rounds=args.rounds,
        compiled=args.compiled,
    )
    return bench.finish(propose.run(plan, bench.teller(args.output)), args.output)


def run_trees(args: argparse.Namespace) -> int:
    """Run ``trees``."""
    from tests.benchmarks import trees

    plan = trees.TreesBenchConfig(
        methods=list(filter(None, args.methods.split(","))),
        timed=list(filter(None, args.timed.split(","))),
        rows=numbers("--rows", args.rows, int, 2),
        batches=numbers("--batches", args.batches, int, 1),
        rounds=args.rounds,
    )
    return bench.finish(trees.run(plan, bench.teller(args.output)), args.output)


def run_adaptive(args: argparse.Namespace) -> int:
    """Run ``adaptive``."""
    spec = parse_speculative(args.speculative_config)
    section = {"ascend_spec": {"draft_length": args.draft_length}}
    resolve_engine(args.model, spec, section, EngineOptions(device=select.find_device()))
    record = adaptive_options.measure(
        args,
        spec,
        bench.read_prompts(args.prompts),
        bench.read_prompts(args.repetitive),
        numbers("--clients", args.clients, int, 1),
        numbers("--temperatures", args.temperatures, float, 0),
        bench.teller(args.output),
    )
    return bench.finish(record, args.output)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a benchmark and return its exit status."""
    parser = make_parser()
    args, rest = parser.parse_known_args(argv)
    if rest:
        parser.error(unknown(parser, args.benchmark, privacy.arguments(rest)))
    try:
        versions.require_vllm()
        # A peer's process ends with this one.
        stop_servers_on_sigterm()
        return args.benchmark_run(args)
    except AscendSpecError as error:
        message = redact(str(error), sys.argv[1:] if argv is None else argv)
        sys.stderr.write(f"{PROGRAM} {args.benchmark}: error: {message}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
