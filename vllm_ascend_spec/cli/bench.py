"""``vllm-ascend-spec bench NAME``: benchmarks that write a JSON record."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from vllm_ascend_spec import versions
from vllm_ascend_spec.bench.server import stop_servers_on_sigterm
from vllm_ascend_spec.cli import bench_verify
from vllm_ascend_spec.cli.env import plugins
from vllm_ascend_spec.config.engine import Engine
from vllm_ascend_spec.config.json_option import parse_speculative
from vllm_ascend_spec.config.preflight import check_engine
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.platform import select

HELP = (
    "measure: `bench serve` end to end, `bench step` by parts, `bench verify` the kernels, "
    "`bench npu-sim` counts on a simulated NPU"
)
DEFAULT_SPEC = '{"method": "eagle", "model": "examples/zoo/eagle", "num_speculative_tokens": 3}'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmarks."""
    benchmarks = parser.add_subparsers(dest="benchmark", required=True, metavar="NAME")
    serve = benchmarks.add_parser("serve", help="two servers, with and without speculation")
    _add_common(serve)
    serve.add_argument("--modes", default="eager,compiled", help="eager, compiled or both")
    serve.add_argument("--batches", default="1,8", help="concurrent requests, a list")
    serve.add_argument("--temperatures", default="0,0.8", help="a list; 0 is greedy")
    serve.add_argument("--rounds", type=int, default=5, help="passes per load and server")
    serve.add_argument("--num-prompts", type=int, default=16)
    serve.set_defaults(benchmark_run=run_serve)
    step = benchmarks.add_parser("step", help="one engine step by its parts, in this process")
    _add_common(step)
    step.add_argument("--batch", type=int, default=1)
    step.add_argument("--temperature", type=float, default=0.0)
    step.add_argument("--rounds", type=int, default=3)
    step.add_argument("--compiled", action="store_true", help="with torch.compile")
    step.set_defaults(benchmark_run=run_step)
    counts = benchmarks.add_parser("npu-sim", help="counts on a simulated NPU, against vllm-ascend")
    _add_common(counts)
    counts.add_argument("--batch", type=int, default=8)
    counts.add_argument("--graph-mode", default="FULL_DECODE_ONLY", help="cudagraph_mode, or eager")
    counts.add_argument("--workloads", default="greedy,sampled,structured", help="a list")
    counts.set_defaults(benchmark_run=run_npu_sim, max_tokens=16)
    verify = benchmarks.add_parser("verify", help="verification kernels against their peers")
    bench_verify.add_arguments(verify)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="examples/zoo/target", help="the target")
    parser.add_argument("--speculative-config", default=DEFAULT_SPEC, metavar="JSON")
    parser.add_argument("--prompts", type=Path, default=Path("examples/zoo/prompts.json"))
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--output", type=Path, help="where the JSON record goes")


def run(args: argparse.Namespace) -> int:
    """Run the benchmark that was named."""
    versions.require_vllm()
    stop_servers_on_sigterm()
    return args.benchmark_run(args)


def read_prompts(path: Path, count: int | None = None) -> list[str]:
    """Read a JSON list of prompts."""
    if not path.is_file():
        raise ConfigError(
            "--prompts", str(path), "there is no such file; give a JSON list of texts"
        )
    prompts = json.loads(path.read_text())
    if count is not None and not 1 <= count <= len(prompts):
        raise ConfigError("--num-prompts", count, f"valid: 1 to {len(prompts)}")
    return prompts[:count]


def numbers(option: str, text: str, kind: type) -> list[Any]:
    """Parse a comma-separated list."""
    try:
        return [kind(item) for item in text.split(",")]
    except ValueError:
        raise ConfigError(
            option, text, f"valid: a comma-separated list of {kind.__name__}"
        ) from None


def run_serve(args: argparse.Namespace) -> int:
    """Run ``bench serve``."""
    from vllm_ascend_spec.bench import serve
    from vllm_ascend_spec.bench.client import Load

    spec = parse_speculative(args.speculative_config)
    check_engine(args.model, spec)
    modes = tuple(args.modes.split(","))
    for mode in modes:
        if mode not in serve.MODES:
            raise ConfigError("--modes", args.modes, f"valid: {', '.join(serve.MODES)}")
    prompts = read_prompts(args.prompts, args.num_prompts)
    loads = tuple(
        Load(prompts, args.max_tokens, temperature, batch)
        for batch in numbers("--batches", args.batches, int)
        for temperature in numbers("--temperatures", args.temperatures, float)
    )
    plan = serve.Plan(
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
    )
    return _finish(serve.run(plan), args.output)


def run_step(args: argparse.Namespace) -> int:
    """Run ``bench step``."""
    from vllm_ascend_spec.bench import step

    spec = parse_speculative(args.speculative_config)
    check_engine(args.model, spec, engine=Engine(device=select.detect_device()))
    plan = step.Plan(
        model=args.model,
        speculative_config=spec,
        prompts=read_prompts(args.prompts)[: 8 * args.batch],
        max_tokens=args.max_tokens,
        batch=args.batch,
        temperature=args.temperature,
        rounds=args.rounds,
        compiled=args.compiled,
    )
    return _finish(step.run(plan), args.output)


def run_npu_sim(args: argparse.Namespace) -> int:
    """Run ``bench npu-sim``."""
    from vllm_ascend_spec.bench import npu_sim

    npu_sim.require_simulator()
    spec = parse_speculative(args.speculative_config)
    check_engine(args.model, spec)
    workloads = tuple(args.workloads.split(","))
    for workload in workloads:
        if workload not in npu_sim.WORKLOADS:
            valid = ", ".join(npu_sim.WORKLOADS)
            raise ConfigError("--workloads", args.workloads, f"valid: {valid}")
    plan = npu_sim.Plan(
        model=args.model,
        speculative_config=spec,
        prompts=read_prompts(args.prompts)[: args.batch],
        max_tokens=args.max_tokens,
        graph_mode=args.graph_mode,
        workloads=workloads,
    )
    return _finish(npu_sim.run(plan, plugins(os.environ) or select.PLUGIN_NAME), args.output)


def _finish(record: dict[str, Any], output: Path | None) -> int:
    text = json.dumps(record, indent=1)
    if output is None:
        sys.stdout.write(text + "\n")
    else:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text + "\n")
        sys.stderr.write(f"record: {output}\n")
    return 0
