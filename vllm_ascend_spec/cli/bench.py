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
from vllm_ascend_spec.cli import bench_accuracy, bench_adaptive, bench_sweep, bench_verify
from vllm_ascend_spec.cli.bench_engine import numbers
from vllm_ascend_spec.config.engine import EngineOptions
from vllm_ascend_spec.config.json_option import parse_speculative
from vllm_ascend_spec.devices import select
from vllm_ascend_spec.errors import ConfigError, did_you_mean
from vllm_ascend_spec.hooks.preflight import resolve_engine

HELP = (
    "measure: `bench serve` end to end, `bench step` by parts, `bench propose` drafting, "
    "`bench adaptive` a K that is chosen, `bench verify` the kernels, "
    "`bench sweep` methods and K under many loads, `bench accuracy` the answers"
)
DEFAULT_SPEC = '{"method": "eagle", "model": "examples/zoo/eagle", "num_speculative_tokens": 3}'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a subcommand for each benchmark."""
    benchmarks = parser.add_subparsers(dest="benchmark", required=True, metavar="NAME")
    serve = benchmarks.add_parser("serve", help="two servers, with and without speculation")
    add_common(serve)
    serve.add_argument("--modes", default="eager,compiled", help="eager, compiled or both")
    serve.add_argument("--batches", default="1,8", help="concurrent requests, a list")
    serve.add_argument("--temperatures", default="0,0.8", help="a list; 0 is greedy")
    serve.add_argument("--rounds", type=int, default=5, help="starts of each server")
    serve.add_argument("--num-prompts", type=int, default=16)
    add_start_timeout(serve)
    add_peer(serve, several=True)
    serve.set_defaults(benchmark_run=run_serve)
    step = benchmarks.add_parser("step", help="one engine step by its parts, in this process")
    add_common(step)
    step.add_argument("--batch", type=int, default=1)
    step.add_argument("--temperature", type=float, default=0.0)
    step.add_argument("--rounds", type=int, default=3)
    step.add_argument("--compiled", action="store_true", help="with torch.compile")
    step.add_argument(
        "--idle", action="store_true", help="one more engine that could draft, held at K=0"
    )
    add_peer(step)
    step.set_defaults(benchmark_run=run_step)
    propose = benchmarks.add_parser("propose", help="what drafting costs beside the draft model")
    add_common(propose, several=True)
    propose.add_argument("--batches", default="1,8", help="concurrent requests, a list")
    propose.add_argument("--temperature", type=float, default=0.0)
    propose.add_argument("--rounds", type=int, default=3)
    propose.add_argument("--compiled", action="store_true", help="with torch.compile")
    propose.set_defaults(benchmark_run=run_propose)
    adaptive = benchmarks.add_parser("adaptive", help="K chosen in each step beside fixed ones")
    bench_adaptive.add_arguments(adaptive, add_common)
    adaptive.set_defaults(benchmark_run=run_adaptive)
    sweep = benchmarks.add_parser("sweep", help="methods and K beside none, under many loads")
    bench_sweep.add_arguments(sweep)
    sweep.set_defaults(benchmark_run=run_sweep)
    accuracy = benchmarks.add_parser("accuracy", help="answers and scores, with and without")
    bench_accuracy.add_arguments(accuracy)
    accuracy.set_defaults(benchmark_run=run_accuracy)
    verify = benchmarks.add_parser("verify", help="verification kernels against their peers")
    bench_verify.add_arguments(verify)


def add_common(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """Add the options that all benchmarks of an engine share.

    Args:
        parser: parser of the benchmark.
        several: whether it takes several speculative configs.
    """
    parser.add_argument("--model", default="examples/zoo/target", help="the target")
    if several:
        parser.add_argument(
            "--speculative-config",
            action="append",
            metavar="JSON",
            help=f"once or several times; default: {DEFAULT_SPEC}",
        )
    else:
        parser.add_argument("--speculative-config", default=DEFAULT_SPEC, metavar="JSON")
    parser.add_argument("--prompts", type=Path, default=Path("examples/zoo/prompts.json"))
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--output", type=Path, help="where the JSON record goes")


def add_peer(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """Add the option that names another environment.

    Args:
        parser: parser of the benchmark.
        several: whether the option may be repeated.
    """
    parser.add_argument(
        peer.OPTION,
        type=Path,
        metavar="PYTHON",
        action="append" if several else "store",
        help="interpreter of another environment, whose vLLM takes turns with this one"
        + ("; once or several times" if several else ""),
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
        peers=tuple(map(peer.find_peer, args.peer_python or ())),
        start_timeout_s=args.start_timeout,
    )
    return finish(serve.run(plan, teller(args.output)), args.output)


def run_step(args: argparse.Namespace) -> int:
    """Run ``bench step``."""
    from vllm_ascend_spec.bench import step
    from vllm_ascend_spec.bench.interleaved import OfflineLoad

    spec = parse_speculative(args.speculative_config)
    resolve_engine(args.model, spec, engine=EngineOptions(device=select.find_device()))
    other = None if args.peer_python is None else peer.find_peer(args.peer_python)
    plan = step.StepBenchConfig(
        model=args.model,
        speculative_config=spec,
        load=OfflineLoad(
            prompts=read_prompts(args.prompts)[: 8 * args.batch],
            max_tokens=args.max_tokens,
            batch=args.batch,
            temperature=args.temperature,
        ),
        rounds=args.rounds,
        compiled=args.compiled,
        idle=args.idle,
        peer=other,
    )
    return finish(step.run(plan, teller(args.output)), args.output)


def run_propose(args: argparse.Namespace) -> int:
    """Run ``bench propose``."""
    from vllm_ascend_spec.bench import propose
    from vllm_ascend_spec.bench.interleaved import OfflineLoad

    specs = [parse_speculative(text) for text in args.speculative_config or [DEFAULT_SPEC]]
    for spec in specs:
        resolve_engine(args.model, spec, engine=EngineOptions(device=select.find_device()))
    prompts = read_prompts(args.prompts)
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
    return finish(propose.run(plan, teller(args.output)), args.output)


def run_adaptive(args: argparse.Namespace) -> int:
    """Run ``bench adaptive``."""
    spec = parse_speculative(args.speculative_config)
    section = {"ascend_spec": {"draft_length": args.draft_length}}
    resolve_engine(args.model, spec, section, EngineOptions(device=select.find_device()))
    prompts = read_prompts(args.prompts)
    repetitive = read_prompts(args.repetitive)
    clients = numbers("--clients", args.clients, int, 1)
    temperatures = numbers("--temperatures", args.temperatures, float, 0)
    record = bench_adaptive.measure(
        args, spec, prompts, repetitive, clients, temperatures, teller(args.output)
    )
    return finish(record, args.output)


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
