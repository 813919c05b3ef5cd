"""``python -m tests.ascend.bench``: the options of the counts on the simulated NPU."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tests.ascend.bench import counts
from tests.benchmarks.verify.options import names
from vllm_ascend_spec.cli import bench
from vllm_ascend_spec.cli.env import plugins
from vllm_ascend_spec.config.json_option import parse_speculative
from vllm_ascend_spec.devices.plugins import PLUGIN_NAME
from vllm_ascend_spec.errors import AscendSpecError
from vllm_ascend_spec.hooks.preflight import resolve_engine


def make_parser() -> argparse.ArgumentParser:
    """Describe the options."""
    parser = argparse.ArgumentParser(prog="tests.ascend.bench", description=counts.__doc__)
    bench.add_common(parser)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--graph-mode", default="FULL_DECODE_ONLY", help="cudagraph_mode, or eager")
    parser.add_argument("--workloads", default=",".join(counts.WORKLOADS), help="a list")
    parser.set_defaults(max_tokens=16)
    return parser


def make_plan(args: argparse.Namespace) -> counts.Plan:
    """Check the options and return the plan.

    Raises:
        ConfigError: an option is wrong; the message names it and what is valid.
    """
    spec = parse_speculative(args.speculative_config)
    resolve_engine(args.model, spec)
    return counts.Plan(
        model=args.model,
        speculative_config=spec,
        prompts=bench.read_prompts(args.prompts)[: args.batch],
        max_tokens=args.max_tokens,
        graph_mode=args.graph_mode,
        workloads=names("--workloads", args.workloads, counts.WORKLOADS) or counts.WORKLOADS,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Count, say what holds, and write the record."""
    args = make_parser().parse_args(argv)
    try:
        counts.require_simulator()
        plan = make_plan(args)
    except AscendSpecError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    record = counts.run(plan, plugins(os.environ) or PLUGIN_NAME, bench.teller(args.output))
    return bench.finish(record, args.output)


if __name__ == "__main__":
    sys.exit(main())
