"""``vllm-ascend-spec plan``: which graphs to capture, compared with vLLM and vllm-ascend."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from vllm_ascend_spec.cli import plan_inputs, plan_report
from vllm_ascend_spec.cli.plan_policies import compare
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.graphs.budget import OWN_GRAPHS
from vllm_ascend_spec.graphs.step_cost import EAGER_FACTOR

HELP = "plan which graphs to capture for speculation, and compare with vLLM's choice"

# Command-line options by the names that errors from graphs/ use.
OPTIONS = {
    "max_num_seqs": "--max-num-seqs",
    "num_speculative_tokens": "--tiers",
    "tiers": "--tiers",
    "divisor": "--tp",
    "load": "--load",
    "step_times": "--step-times",
    "eager_factor": "--eager-factor",
    "budget.graphs": "--graphs",
    "budget.max_tokens": "--max-num-batched-tokens",
    "budget.bytes": "--memory-mib, in bytes,",
}
# Options that are gone, and why.
ESTIMATES = "is gone with the estimates of memory: --memory-mib takes --graph-mib, as measured"
MOVED = {
    "--png": "is gone; --json has the sizes, and what each policy wastes",
    "--old-cann": "is gone: give --graphs how many fit into the streams, see docs/graphs.md",
    **dict.fromkeys(("--layers", "--draft-layers", "--hidden-size"), ESTIMATES),
    **dict.fromkeys(("--dp", "--data-parallel-size", "--enable-expert-parallel"), ESTIMATES),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the engine, the load and the budget."""
    vars(parser)["moved"] = MOVED
    add = parser.add_argument
    add("--max-num-seqs", type=int, metavar="N", help="as for vllm serve; required")
    add("--num-speculative-tokens", type=int, metavar="K", help="drafts per request")
    add(
        "--tiers",
        metavar="LIST",
        help="several values of K: a list like 1,3 if any batch may have any of them, or a "
        "schedule like [[1,64,3],[65,256,1]]",
    )
    add(
        "--graphs",
        type=int,
        help="maximum number of graphs; default: as many as vLLM captures, or up to "
        f"{OWN_GRAPHS} if that is more",
    )
    add(
        "--load",
        default="zipf",
        metavar="zipf|uniform|normal:MEAN,DEVIATION|FILE|URL",
        help="expected batch sizes: weights 1/n, equal, or around a mean; a file of counts; or a "
        "server's metrics, as a file or http://…/metrics; default zipf",
    )
    add(
        "--tp", "--tensor-parallel-size", type=int, default=1, metavar="N", help="as for vllm serve"
    )
    add(
        "--sequence-parallel",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="plan only multiples of --tp, as sequence parallelism needs; other engines can use "
        "them, too",
    )
    add("--max-num-batched-tokens", type=int, metavar="N", help="as for vllm serve")
    add(
        "--step-times",
        type=Path,
        metavar="FILE",
        help="measured times of steps, used as their cost; default: their number of tokens",
    )
    add(
        "--eager-factor",
        type=float,
        default=EAGER_FACTOR,
        metavar="X",
        help=f"assumed cost of an eager step, in replays of its size; default {EAGER_FACTOR:g}",
    )
    add(
        "--allow-eager",
        action="store_true",
        help="leave large batches without a graph where --eager-factor makes that cheaper",
    )
    add(
        "--memory-mib",
        type=float,
        metavar="MIB",
        help="memory budget of all graphs; needs --graph-mib",
    )
    add("--graph-mib", type=float, metavar="MIB", help="measured memory of a graph")
    add(
        "--row-kib",
        type=float,
        metavar="KIB",
        help="measured memory per token of the largest graph",
    )
    add("--json", action="store_true", help="print a JSON record")


def run(args: argparse.Namespace) -> int:
    """Plan, compare, and print."""
    try:
        case = plan_inputs.case_of(args)
        comparison = compare(case)
    except ConfigError as error:
        option = OPTIONS.get(error.option, error.option)
        raise ConfigError(option, error.value, error.problem) from None
    if args.json:
        record = plan_report.record(case, comparison)
        sys.stdout.write(json.dumps(record, indent=1) + "\n")
    else:
        sys.stdout.write(plan_report.text(case, comparison) + "\n")
    return 0
