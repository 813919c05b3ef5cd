"""``python -m tests.ascend.bench.trees``: steps with a tree beside those with a chain as long.

As in ``counts.py`` the counts are those of the simulated NPU, and say nothing about time.
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
from vllm_ascend_spec.config.draft_tree import size_of
from vllm_ascend_spec.devices.plugins import PLUGIN_NAME
from vllm_ascend_spec.errors import AscendSpecError

CHAIN = "chain"
FIGURES = ("device_ops", "bytes", "replays", "syncs", "d2h_copies", "h2d_copies")
PARTS = ("target", "verification", "step")


def run(plan: Plan, tree: str, plugin_names: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Count and return the record; ``tell`` prints its table.

    Args:
        plan: what is served; its workloads are one, its drafts as many as the tree's.
        tree: the option ``tree``.
        plugin_names: ``VLLM_PLUGINS`` with which this package is used.
    """
    (workload,) = plan.workloads
    found = {}
    with Progress(2) as progress:
        for name, section in ((CHAIN, {}), (tree, {"tree": tree})):
            progress.next(name)
            found[name] = count({**asdict(plan), "section": section}, OURS, plugin_names)[workload]
    tell(format_table(found))
    return {
        "benchmark": "npu-sim-trees",
        "provenance": provenance.collect(),
        "graph_mode": plan.graph_mode,
        "requests": len(plan.prompts),
        "same_answers": found[CHAIN]["tokens"] == found[tree]["tokens"],
        "results": {
            name: {
                "steps": row["steps"],
                **{part: {f: row[part][f] for f in FIGURES} for part in PARTS},
                "ops": {part: row[part]["ops"] for part in PARTS},
            }
            for name, row in found.items()
        },
    }


def format_table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a line for each kind of drafts and part of a step."""
    lines = [f"{'':24}" + "".join(f"{name:>14}" for name in ("steps", *FIGURES))]
    for name, row in found.items():
        for part in PARTS:
            figures = "".join(f"{row[part][figure]:14,.1f}" for figure in FIGURES)
            lines.append(f"{f'{name}, {part}':24}{row['steps']:14}{figures}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Count, print a table, and write the record."""
    parser = argparse.ArgumentParser(prog="tests.ascend.bench.trees", description=__doc__)
    bench.add_common(parser)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--graph-mode", default="FULL_DECODE_ONLY", help="cudagraph_mode, or eager")
    parser.add_argument("--tree", default="5x3", help="the option of that name, such as 5x3")
    parser.set_defaults(max_tokens=32, workloads="greedy")
    args = parser.parse_args(argv)
    try:
        require_simulator()
        plan = make_plan(args)
        spec = {**plan.speculative_config, "num_speculative_tokens": size_of(args.tree, None)}
    except AscendSpecError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    plan = replace(plan, speculative_config=spec)
    record = run(plan, args.tree, plugins(os.environ) or PLUGIN_NAME, bench.teller(args.output))
    return bench.finish(record, args.output)


if __name__ == "__main__":
    sys.exit(main())
