"""``python -m tests.ascend.bench.tiers``: a step's cost on the simulated NPU by K, where K changes.

One engine has graphs for every K and keeps to each in turn; beside it stands an engine for each
fixed K. As in ``counts.py`` the counts say nothing about time.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tests.ascend.bench.__main__ import make_plan
from tests.ascend.bench.counts import OURS, Plan, count, require_simulator
from vllm_ascend_spec.bench import provenance
from vllm_ascend_spec.bench.progress import Progress
from vllm_ascend_spec.cli import bench
from vllm_ascend_spec.cli.env import plugins
from vllm_ascend_spec.devices.plugins import PLUGIN_NAME
from vllm_ascend_spec.errors import AscendSpecError

ADAPTIVE = {"draft_length": "adaptive"}
CHANGES = "K changes"
FIGURES = ("device_ops", "replays", "syncs", "d2h_copies", "h2d_copies")


def run(plan: Plan, plugin_names: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Count and return the record; ``tell`` prints its table.

    Args:
        plan: what is served; its workloads are one.
        plugin_names: ``VLLM_PLUGINS`` with which this package is used.
    """
    lengths = range(plan.num_drafts + 1)
    (workload,) = plan.workloads
    with Progress(len(lengths)) as progress:
        progress.next(CHANGES)
        changing = count(
            {**asdict(plan), "section": ADAPTIVE, "lengths": list(lengths)}, OURS, plugin_names
        )
        found = {f"K={k}": {CHANGES: changing[f"{workload}, K={k}"]} for k in lengths}
        for k in lengths[1:]:
            progress.next(f"K={k}")
            spec = {**plan.speculative_config, "num_speculative_tokens": k}
            alone = count({**asdict(plan), "speculative_config": spec}, OURS, plugin_names)
            found[f"K={k}"]["K is fixed"] = alone[workload]
    tell(format_table(found))
    return {
        "benchmark": "npu-sim-tiers",
        "provenance": provenance.collect(),
        "graph_mode": plan.graph_mode,
        "requests": len(plan.prompts),
        "results": {
            k: {name: {f: row["step"][f] for f in FIGURES} for name, row in rows.items()}
            for k, rows in found.items()
        },
    }


def format_table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a line for each K and engine."""
    lines = [f"{'of a step':24}" + "".join(f"{name:>14}" for name in FIGURES)]
    for k, rows in found.items():
        for name, row in rows.items():
            figures = "".join(f"{row['step'][figure]:14.1f}" for figure in FIGURES)
            lines.append(f"{f'{k}, {name}':24}{figures}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Count, print a table, and write the record."""
    parser = argparse.ArgumentParser(prog="tests.ascend.bench.tiers", description=__doc__)
    bench.add_common(parser)
    parser.add_argument("--batch", type=int, default=4)
    parser.set_defaults(max_tokens=16, workloads="greedy", graph_mode="FULL_DECODE_ONLY")
    args = parser.parse_args(argv)
    try:
        require_simulator()
        plan = make_plan(args)
    except AscendSpecError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    record = run(plan, plugins(os.environ) or PLUGIN_NAME, bench.teller(args.output))
    return bench.finish(record, args.output)


if __name__ == "__main__":
    sys.exit(main())
