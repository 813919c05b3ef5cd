"""``vllm-ascend-spec bench NAME``: benchmarks that write a JSON record."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vllm_ascend_spec import versions
from vllm_ascend_spec.bench import peer
from vllm_ascend_spec.bench.start_timeout import add_start_timeout
from vllm_ascend_spec.cli import bench_accuracy, bench_sweep
from vllm_ascend_spec.cli.bench_engine import numbers
from vllm_ascend_spec.config.json_option import parse_speculative
from vllm_ascend_spec.errors import ConfigError, did_you_mean
from vllm_ascend_spec.hooks.preflight import resolve_engine

HELP = (
    "measure speculation: `bench serve` with a server, `bench sweep` every method and K under many "
    "loads, `bench accuracy` the answers"
)
# For developers, in tests/benchmarks/ of a checkout.
MOVED = ("verify", "step", "propose", "adaptive")
DEFAULT_SPEC = '{"method": "eagle", "model": "examples/zoo/eagle", "num_speculative_tokens": 3}'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a subcommand for each benchmark."""
    benchmarks = parser.add_subparsers(dest="benchmark", required=True, metavar="NAME")
    vars(benchmarks)["moved"] = {
        name: f"`bench {name}` is for developers and left the package; in a checkout: "
        f"python -m tests.benchmarks {name}"
        for name in MOVED
    }
    serve = benchmarks.add_parser("serve", help="compare a server with speculation and one without")
    add_common(serve)
    serve.add_argument(
        "--modes", default="eager,compiled", help="eager, compiled or both, as a list"
    )
    serve.add_argument("--batches", default="1,8", help="numbers of concurrent requests, a list")
    serve.add_argument(
        "--temperatures", default="0,0.8", help="sampling temperatures, a list; 0 is greedy"
    )
    serve.add_argument(
        "--rounds", type=int, default=5, help="how often each server is started and measured"
    )
    serve.add_argument(
        "--num-prompts", type=int, default=16, help="how many prompts of the file are used"
    )
    add_start_timeout(serve)
    serve.add_argument(
        peer.OPTION,
        type=Path,
        metavar="PYTHON",
        action="append",
        help="interpreter of another environment, whose vLLM takes turns with this one; once or "
        "several times",
    )
    serve.set_defaults(benchmark_run=run_serve)
    sweep = benchmarks.add_parser(
        "sweep", help="compare methods and K with no speculation, under many loads"
    )
    bench_sweep.add_arguments(sweep)
    sweep.set_defaults(benchmark_run=run_sweep)
    accuracy = benchmarks.add_parser(
        "accuracy", help="compare answers and scores with those without speculation"
    )
    bench_accuracy.add_arguments(accuracy)
    accuracy.set_defaults(benchmark_run=run_accuracy)


def add_common(parser: argparse.ArgumentParser, **config: Any) -> None:
    """Add the options that benchmarks of one model share.

    Args:
        parser: parser of the benchmark.
        config: how ``--speculative-config`` differs from one config with a default.
    """
    parser.add_argument("--model", default="examples/zoo/target", help="the target model")
    how = {"default": DEFAULT_SPEC, "metavar": "JSON", "help": "as for vllm serve", **config}
    parser.add_argument("--speculative-config", **how)
    parser.add_argument(
        "--prompts",
        type=Path,
        default=Path("examples/zoo/prompts.json"),
        help="a JSON list of prompts",
    )
    parser.add_argument("--max-tokens", type=int, default=64, help="maximum length of an answer")
    parser.add_argument(
        "--output", type=Path, help="file for the JSON record; default: standard output"
    )


def run(args: argparse.Namespace) -> int:
    """Run the benchmark that was named."""
    from vllm_ascend_spec.bench.server import stop_servers_on_sigterm

    versions.require_vllm()
    stop_servers_on_sigterm()
    return args.benchmark_run(args)


def read_prompts(path: Path, count: int | None = None) -> list[str]:
    """Read a JSON list of prompts, or of objects with a key ``prompt``."""
    if not path.is_file():
        raise ConfigError(
            "--prompts", str(path), "there is no such file; give a JSON list of texts"
        )
    rows = json.loads(path.read_text())
    # A set of tasks also has the expected answer of each prompt.
    prompts = [row["prompt"] if isinstance(row, dict) else row for row in rows]
    if count is not None and not 1 <= count <= len(prompts):
        raise ConfigError("--num-prompts", count, f"valid: 1 to {len(prompts)}")
    return prompts[:count]


def run_serve(args: argparse.Namespace) -> int:
    """Run ``bench serve``."""
    from vllm_ascend_spec.bench import serve
    from vllm_ascend_spec.bench.client import ClientLoad

    spec = parse_speculative(args.speculative_config)
    resolve_engine(args.model, spec)
    modes = tuple(args.modes.split(","))
    for mode in modes:
        if mode not in serve.MODES:
            problem = f"{did_you_mean(mode, serve.MODES)}valid: {', '.join(serve.MODES)}"
            raise ConfigError("--modes", args.modes, problem)
    prompts = read_prompts(args.prompts, args.num_prompts)
    loads = tuple(
        ClientLoad(prompts, args.max_tokens, temperature, batch)
        for batch in numbers("--batches", args.batches, int, 1)
        for temperature in numbers("--temperatures", args.temperatures, float, 0)
    )
    plan = serve.ServeBenchConfig(
        model=args.model,
        speculative_config=spec,
        loads=loads,
        modes=modes,
        rounds=args.rounds,
        arguments=("--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "8"),
        environment={
            "OMP_NUM_THREADS": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_LOGGING_LEVEL": "WARNING",
        },
        peers=peer.find_peers(args.peer_python or ()),
        start_timeout_s=args.start_timeout,
    )
    return finish(serve.run(plan, teller(args.output)), args.output)


def run_sweep(args: argparse.Namespace) -> int:
    """Run ``bench sweep``; with ``--record`` only report an earlier record."""
    record = bench_sweep.measure(args, teller(args.output))
    return 0 if args.record else finish(record, args.output)


def run_accuracy(args: argparse.Namespace) -> int:
    """Run ``bench accuracy``; the exit status is 1 if the comparison fails."""
    record = bench_accuracy.measure(args, teller(args.output))
    finish(record, args.output)
    return int(not record["passed"])


def teller(output: Path | None) -> Callable[[str], None]:
    """Return a function that prints results to stdout, or to stderr if stdout gets the record."""
    from vllm_ascend_spec.bench.progress import tell

    return functools.partial(tell, to_stderr=output is None)


def finish(record: dict[str, Any], output: Path | None) -> int:
    """Write the record to ``output``, or print it; return the command's exit status."""
    text = json.dumps(record, indent=1)
    if output is None:
        sys.stdout.write(text + "\n")
    else:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text + "\n")
        sys.stderr.write(f"record: {output}\n")
    return 0
