"""``python -m tests.ascend.bench.trees``: steps with trees, beside a chain of as many drafts.

The trees are a comb, the shape that a number of drafts has on an NPU, and the best tree by common
rates, of which more drafts are followed by others, so the draft model makes more passes.

As in ``counts.py`` the counts are those of the simulated NPU, and say nothing about time. Bytes are
those of ops that do not get the KV cache, of which the simulator would count all blocks.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from tests.ascend.bench.__main__ import make_plan
from tests.ascend.bench.counts import OURS, Plan, count, require_simulator
from vllm_ascend_spec.bench import provenance
from vllm_ascend_spec.bench.progress import Progress
from vllm_ascend_spec.cli import bench
from vllm_ascend_spec.cli.env import plugins
from vllm_ascend_spec.config.draft_tree import PATHS
from vllm_ascend_spec.config.tree_shape import best_tree, size_of
from vllm_ascend_spec.devices.plugins import PLUGIN_NAME
from vllm_ascend_spec.errors import AscendSpecError

CHAIN, BEST = "chain", "best tree"
FIGURES = ("device_ops", "bytes", "replays", "syncs", "d2h_copies", "h2d_copies")
PARTS = ("target", "verification", "step")


def ways(plan: Plan, comb: str) -> dict[str, dict[str, Any]]:
    """Return jobs by name: a chain, and trees of as many drafts.

    Args:
        plan: what is served.
        comb: the option ``tree``.
    """
    size = plan.num_drafts
    paths = {**plan.speculative_config, PATHS: list(best_tree(size))}
    asked: dict[str, dict[str, Any]] = {
        CHAIN: {},
        comb: {"section": {"tree": comb}},
        str(size): {"section": {"tree": size}},
        BEST: {"speculative_config": paths},
    }
    return {name: {**asdict(plan), **job} for name, job in asked.items()}


def run(plan: Plan, comb: str, plugin_names: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Count and return the record; ``tell`` prints its table.

    Args:
        plan: what is served; its workloads are one, its drafts as many as the tree's.
        comb: the option ``tree``.
        plugin_names: ``VLLM_PLUGINS`` with which this package is used.
    """
    (workload,) = plan.workloads
    jobs, found = ways(plan, comb), {}
    with Progress(len(jobs)) as progress:
        for name, job in jobs.items():
            progress.next(name)
            found[name] = count(job, OURS, plugin_names)[workload]
    tell(format_table(found))
    return {
        "benchmark": "npu-sim-trees",
        "provenance": provenance.collect(),
        "graph_mode": plan.graph_mode,
        "method": plan.speculative_config["method"],
        "drafts": plan.num_drafts,
        "requests": len(plan.prompts),
        "same_answers": all(row["tokens"] == found[CHAIN]["tokens"] for row in found.values()),
        "results": {
            name: {
                "steps": row["steps"],
                "draft_rows": row["draft_rows"],
                **{part: figures_of(row[part]) for part in PARTS},
                "ops": {part: row[part]["ops"] for part in PARTS},
            }
            for name, row in found.items()
        },
    }


def figures_of(counted: Mapping[str, Any]) -> dict[str, float]:
    """Return what is compared of a part of a step."""
    own = {**counted, "bytes": counted["bytes"] - counted["cache_bytes"]}
    return {name: own[name] for name in FIGURES}


def format_table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a line for each kind of drafts and part of a step."""
    lines = [f"{'':24}" + "".join(f"{name:>14}" for name in ("steps", *FIGURES))]
    for name, row in found.items():
        for part in PARTS:
            figures = "".join(f"{value:14,.1f}" for value in figures_of(row[part]).values())
            lines.append(f"{f'{name}, {part}':24}{row['steps']:14}{figures}")
    return "\n".join(lines)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="tests.ascend.bench.trees", description=__doc__)
    bench.add_common(parser)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--graph-mode", default="FULL_DECODE_ONLY", help="cudagraph_mode, or eager")
    parser.add_argument("--tree", default="5x3", help="the option of that name, such as 5x3")
    parser.set_defaults(max_tokens=32, workloads="greedy")
    return parser


def plan_of(args: argparse.Namespace) -> Plan:
    """Return what the options ask for, with as many drafts as the tree has."""
    plan = make_plan(args)
    spec = {**plan.speculative_config, "num_speculative_tokens": size_of(args.tree)}
    return replace(plan, speculative_config=spec)


def main(argv: Sequence[str] | None = None) -> int:
    """Count, print a table, and write the record."""
    args = make_parser().parse_args(argv)
    try:
        require_simulator()
        plan = plan_of(args)
    except AscendSpecError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    record = run(plan, args.tree, plugins(os.environ) or PLUGIN_NAME, bench.teller(args.output))
    return bench.finish(record, args.output)


if __name__ == "__main__":
    sys.exit(main())
