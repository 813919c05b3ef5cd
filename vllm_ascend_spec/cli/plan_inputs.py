"""Read and check the options of ``vllm-ascend-spec plan``."""

from __future__ import annotations

import argparse
import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.graphs import distribution_file, distribution_metrics, distribution_name
from vllm_ascend_spec.graphs.batch_distribution import BatchDistribution
from vllm_ascend_spec.graphs.budget import Budget, GraphCost
from vllm_ascend_spec.graphs.step_cost import StepCost, measured
from vllm_ascend_spec.graphs.stock_rules import CaptureInputs, Rows
from vllm_ascend_spec.graphs.tiers import (
    Tier,
    check_count,
    tiers_of_drafts,
    tiers_of_schedule,
)
from vllm_ascend_spec.metrics.prometheus import read_samples

MIB = 1024 * 1024
TIERS = "valid: a list of K like 1,3 or a schedule like [[1,64,3],[65,256,1]]"
LOADS = "valid: uniform, zipf, normal:MEAN,DEVIATION, a file or http://…/metrics"


@dataclass(frozen=True)
class PlanCase:
    """What to plan for.

    Attributes:
        engine: what the stock rules read of the engine.
        load: how often batches of each size are decoded.
        budget: limits on what is captured.
        work: what steps cost.
        cover: whether every batch that can be replayed must be.
    """

    engine: CaptureInputs
    load: BatchDistribution
    budget: Budget
    work: StepCost
    cover: bool

    @property
    def has_limit_on_graphs(self) -> bool:
        """Whether something bounds the number of graphs."""
        return self.budget.graphs is not None or self.budget.bytes is not None


def case_of(args: argparse.Namespace) -> PlanCase:
    """Return the case of a command line.

    Raises:
        ConfigError: naming the option, what was given and what is valid.
    """
    if args.max_num_seqs is None:
        raise ConfigError("--max-num-seqs", None, "is missing; valid: 1 or more, e.g. 256")
    check_count("--max-num-seqs", args.max_num_seqs, 1)
    check_count("--tp", args.tp, 1)
    if args.max_num_batched_tokens is not None:
        check_count("--max-num-batched-tokens", args.max_num_batched_tokens, args.max_num_seqs)
    tiers, schedule = tiers_of(args.tiers, args.num_speculative_tokens, args.max_num_seqs)
    engine = CaptureInputs(
        max_num_seqs=args.max_num_seqs,
        tiers=tiers,
        schedule=schedule,
        tensor_parallel_size=args.tp,
        sequence_parallel=args.sequence_parallel and args.tp > 1,
        max_num_batched_tokens=args.max_num_batched_tokens,
    )
    budget = Budget(
        graphs=args.graphs,
        max_tokens=args.max_num_batched_tokens,
        bytes=None if args.memory_mib is None else int(args.memory_mib * MIB),
        cost=cost_of(args),
    )
    return PlanCase(
        engine=engine,
        load=load_of(args.load, tiers, args.max_num_seqs),
        budget=budget,
        work=work_of(args),
        cover=not args.allow_eager,
    )


def tiers_of(
    text: str | None, drafts: int | None, max_num_seqs: int
) -> tuple[tuple[Tier, ...], Rows | None]:
    """Return the tiers, and the schedule if they come from one.

    Raises:
        ConfigError: neither option is given, or the two contradict each other.
    """
    if drafts is not None:
        check_count("--num-speculative-tokens", drafts, 1)
    if text is None:
        if drafts is None:
            problem = "is missing; valid: this one, e.g. 3, or --tiers"
            raise ConfigError("--num-speculative-tokens", None, problem)
        return tiers_of_drafts(max_num_seqs, [drafts]), None
    rows = _parse_tiers(text)
    if isinstance(rows[0], int):
        tiers, schedule = tiers_of_drafts(max_num_seqs, rows), None
    else:
        tiers = tiers_of_schedule(max_num_seqs, rows)
        schedule = tuple((row[0], row[1], row[2]) for row in rows)
    most = max(tier.k for tier in tiers)
    if most == 0:
        raise ConfigError("--tiers", text, "has no K above 0; nearest: add one, e.g. 1")
    if drafts is not None and most > drafts:
        problem = f"K={most} is more than --num-speculative-tokens {drafts}; nearest: that number"
        raise ConfigError("--tiers", text, problem)
    return tiers, schedule


def _parse_tiers(text: str) -> list[Any]:
    """Parse ``--tiers`` to a list of numbers or of rows."""
    try:
        given = json.loads(text if text.strip().startswith("[") else f"[{text}]")
    except ValueError:
        raise ConfigError("--tiers", text, TIERS) from None
    are_rows = [isinstance(item, list) for item in given]
    if not given or any(are_rows) != all(are_rows):
        raise ConfigError("--tiers", text, TIERS)
    flat = [n for item in given for n in (item if isinstance(item, list) else [item])]
    if not all(isinstance(n, int) and not isinstance(n, bool) for n in flat):
        raise ConfigError("--tiers", text, TIERS)
    return given


def load_of(text: str, tiers: tuple[Tier, ...], max_num_seqs: int) -> BatchDistribution:
    """Return the load that ``--load`` names.

    Raises:
        ConfigError: it is not a load, or a file (naming the line) or server cannot be read.
    """
    if text.partition(":")[0] in ("http", "https"):
        return _load_of_metrics(_fetch(text), text, tiers, max_num_seqs)
    if (found := distribution_name.named(text, max_num_seqs, "--load", LOADS)) is not None:
        return found
    path = Path(text)
    content = distribution_file.read_text("--load", path)
    if any(line.startswith(("# TYPE ", "# HELP ")) for line in content.splitlines()):
        return _load_of_metrics(content, text, tiers, max_num_seqs)
    return distribution_file.read_histogram(content, text, max_num_seqs)


def _fetch(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.read().decode()
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise ConfigError("--load", url, f"cannot be read: {reason}") from None


def _load_of_metrics(
    text: str, source: str, tiers: tuple[Tier, ...], max_num_seqs: int
) -> BatchDistribution:
    try:
        samples = list(read_samples(text, "vllm:"))
    except ValueError as error:
        problem = f"is not in Prometheus' text format: {error}"
        raise ConfigError("--load", source, problem) from None
    return distribution_metrics.load_of(samples, source, tiers, max_num_seqs)


def work_of(args: argparse.Namespace) -> StepCost:
    """Return what steps cost."""
    if args.step_times is None:
        return StepCost(args.eager_factor)
    text = distribution_file.read_text("--step-times", args.step_times)
    return measured(
        distribution_file.read_step_times(text, str(args.step_times)), args.eager_factor
    )


def cost_of(args: argparse.Namespace) -> GraphCost | None:
    """Return what a graph was measured to take; None without ``--memory-mib``.

    Raises:
        ConfigError: one of the three options lacks another, or is out of range.
    """
    for option in ("graph_mib", "row_kib", "memory_mib"):
        value, name = getattr(args, option), f"--{option.replace('_', '-')}"
        if value is not None and not 0 < value < float("inf"):
            raise ConfigError(name, value, "valid: above 0")
        if value is not None and args.memory_mib is None:
            raise ConfigError(name, value, "has no effect without --memory-mib; give that, too")
    if args.memory_mib is None:
        return None
    if args.graph_mib is None:
        problem = "needs what a graph was measured to take: --graph-mib"
        raise ConfigError("--memory-mib", args.memory_mib, problem)
    return GraphCost(int(args.graph_mib * MIB), int((args.row_kib or 0) * 1024))
