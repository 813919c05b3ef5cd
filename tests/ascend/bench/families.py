"""``python -m tests.ascend.bench.families``: a step's cost on the simulated NPU, by model family.

Each target of ``tests/ascend/targets`` that has a draft model is served by this package and by
plain vllm-ascend, without graphs and with full ones. As in ``counts.py`` the counts say nothing
about time.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.ascend.bench.counts import OURS, PLAIN, Plan, count, require_simulator
from tests.ascend.environment import NPU, ROOT
from tests.ascend.matrix import Case
from tests.ascend.targets.mixtures import MIXTURE_CASES
from tests.ascend.targets.mla import MLA_CASES, MLA_ENVIRONMENT
from tests.ascend.targets.pictures import VL_CASES
from tests.ascend.targets.sparse import SPARSE_CASES
from tests.ascend.targets.states import STATE_CASES
from tests.benchmarks.verify.options import names
from vllm_ascend_spec.bench import provenance
from vllm_ascend_spec.bench.progress import Progress
from vllm_ascend_spec.cli import bench
from vllm_ascend_spec.cli.env import plugins
from vllm_ascend_spec.devices.plugins import PLUGIN_NAME
from vllm_ascend_spec.errors import AscendSpecError

GRAPH_MODES = ("eager", "FULL_DECODE_ONLY")
WORKLOAD = "greedy"
FIGURES = ("device_ops", "bytes", "syncs")
# A line such as "ValueError: …", with the rank or the module in front of the name or without.
ERROR = re.compile(r"(?:\[rank\d+\]: )?([\w.]*(?:Error|Exception): .*)")


@dataclass(frozen=True)
class Family:
    """A target and its draft, as the tests run them.

    Attributes:
        case: of the tests; its model, draft and further arguments of the engine are taken.
        num_blocks: of the KV cache. An op counts all of a cache that it is given, so that they are
            hardly more than the requests need.
        environment: what its engines need in addition.
    """

    case: Case
    num_blocks: int = 32
    environment: Mapping[str, str] = field(default_factory=dict)


FAMILIES: Mapping[str, Family] = {
    "deepseek": Family(MLA_CASES["deepseek-full_decode_only"], environment=MLA_ENVIRONMENT),
    "deepseek-v32": Family(SPARSE_CASES["sparse-full_decode_only"], environment=MLA_ENVIRONMENT),
    # A request has K+1 states of each kind of layer.
    "qwen35": Family(STATE_CASES["mtp-full_decode_only"], num_blocks=160),
    "qwen3-moe": Family(MIXTURE_CASES["qwen3-moe-eagle3-full_decode_only"]),
    "gpt-oss": Family(MIXTURE_CASES["gpt-oss-eagle3-full_decode_only"]),
    "qwen25-vl": Family(VL_CASES["eagle3-full_decode_only"]),
}


def prompts_of(batch: int) -> list[str]:
    """Return what that many requests go on from."""
    return bench.read_prompts(ROOT / "examples" / "zoo" / "prompts.json")[:batch]


def plan_of(family: Family, graph_mode: str, prompts: Sequence[str], max_tokens: int) -> Plan:
    """Return what a family is asked in a mode."""
    arguments, spec = family.case.arguments(), family.case.spec()
    assert spec is not None, "every family drafts"
    return Plan(
        model=_relative(arguments["model"]),
        speculative_config={
            name: _relative(value) if name == "model" else value for name, value in spec.items()
        },
        prompts=prompts,
        max_tokens=max_tokens,
        graph_mode=graph_mode,
        workloads=(WORKLOAD,),
    )


def _relative(path: str) -> str:
    return str(Path(path).relative_to(ROOT))


def count_family(family: Family, plan: Plan, name: str, plugin_names: str) -> Mapping[str, Any]:
    """Return what an engine counts in a step.

    Args:
        family: whose engine it is.
        plan: what it is asked.
        name: of the configuration, :data:`OURS` or :data:`PLAIN`.
        plugin_names: ``VLLM_PLUGINS`` with which this package is used.

    Raises:
        RuntimeError: the engine ended; with its last words.
    """
    given = {key: value for key, value in family.case.engine.items() if key != "model"}
    engine = {**given, "num_gpu_blocks_override": family.num_blocks}
    job = {**asdict(plan), "engine": engine}
    return count(job, name, plugin_names, {**NPU, **family.environment})[WORKLOAD]


def try_family(family: Family, plan: Plan, name: str, plugin_names: str) -> Mapping[str, Any]:
    """Return the figures of one engine, or under ``fails`` the last error it reported."""
    try:
        counted = count_family(family, plan, name, plugin_names)
    except RuntimeError as error:
        return {"fails": last_error(str(error))}
    return {
        "steps": counted["steps"],
        "step": {figure: counted["step"][figure] for figure in FIGURES},
        "verification": {figure: counted["verification"][figure] for figure in FIGURES},
        "draft_rows": counted["draft_rows"],
        "tokens": counted["tokens"],
    }


def last_error(output: str) -> str:
    """Return the last error of an engine's output in one line."""
    errors = [found[1] for line in output.splitlines() if (found := ERROR.match(line))]
    return errors[-1] if errors else output.splitlines()[-1]


def run(
    plans: Mapping[str, Mapping[str, Plan]], plugin_names: str, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Count and return the record; ``tell`` prints its table.

    Args:
        plans: by family and graph mode.
        plugin_names: ``VLLM_PLUGINS`` with which this package is used.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {}
    with Progress(2 * sum(len(modes) for modes in plans.values())) as progress:
        for family, modes in plans.items():
            for mode, plan in modes.items():
                cell = found.setdefault(family, {}).setdefault(mode, {})
                for name in (OURS, PLAIN):
                    progress.next(f"{family}, {mode}: {name}")
                    cell[name] = try_family(FAMILIES[family], plan, name, plugin_names)
                answers = [cell[name].pop("tokens", None) for name in (OURS, PLAIN)]
                # Unknown where an engine failed.
                cell["same_answers"] = None if None in answers else answers[0] == answers[1]
    tell(format_table(found))
    return {
        "benchmark": "npu-sim-families",
        "provenance": provenance.collect(),
        "requests": len(next(iter(next(iter(plans.values())).values())).prompts),
        "plans": {
            family: {
                "model": plan.model,
                "speculative_config": plan.speculative_config,
                "max_tokens": plan.max_tokens,
            }
            for family, modes in plans.items()
            for plan in modes.values()
        },
        "results": found,
    }


def format_table(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Return a line for each family, mode and configuration."""
    lines = [f"{'of a step':46}{'device ops':>12}{'bytes':>16}{'syncs':>8}  draft rows x passes"]
    for family, modes in found.items():
        for mode, cell in modes.items():
            for name in (OURS, PLAIN):
                lines.append(f"{f'{family}, {mode}, {name}':46}{_cells(cell[name])}")
    return "\n".join(lines)


def _cells(counted: Mapping[str, Any]) -> str:
    if "fails" in counted:
        return f"  fails: {counted['fails']}"
    step = counted["step"]
    rows = ", ".join(f"{rows} x {times:g}" for rows, times in counted["draft_rows"].items())
    return f"{step['device_ops']:12,.1f}{step['bytes']:16,.0f}{step['syncs']:8.1f}  {rows}"


def main(argv: Sequence[str] | None = None) -> int:
    """Count, print a table, and write the record."""
    parser = argparse.ArgumentParser(prog="tests.ascend.bench.families", description=__doc__)
    parser.add_argument("--families", default=",".join(FAMILIES), help="a list")
    parser.add_argument("--graph-modes", default=",".join(GRAPH_MODES), help="a list")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=32, help="of an answer")
    parser.add_argument("--output", type=Path, help="file for the JSON record")
    args = parser.parse_args(argv)
    try:
        require_simulator()
        families = names("--families", args.families, tuple(FAMILIES)) or tuple(FAMILIES)
        modes = names("--graph-modes", args.graph_modes, GRAPH_MODES) or GRAPH_MODES
    except AscendSpecError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    prompts = prompts_of(args.batch)
    plans = {
        family: {mode: plan_of(FAMILIES[family], mode, prompts, args.max_tokens) for mode in modes}
        for family in families
    }
    record = run(plans, plugins(os.environ) or PLUGIN_NAME, bench.teller(args.output))
    return bench.finish(record, args.output)


if __name__ == "__main__":
    sys.exit(main())
