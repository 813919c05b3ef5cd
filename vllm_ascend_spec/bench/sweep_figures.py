"""Compute the results of ``bench sweep``: a row per engine and load, and the best of each load."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from vllm_ascend_spec.bench.closed_loop import Run
from vllm_ascend_spec.bench.stats import Summary, paired_ratio
from vllm_ascend_spec.metrics.acceptance import AcceptanceCounts

NONE = "none"
EVERY = "all categories"


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that ``share`` of the values, or more, are at or below."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def times_ms(values: Sequence[float]) -> dict[str, float] | None:
    """Return median and 99th percentile, in ms, of values in seconds; None if there are none."""
    if not values:
        return None
    return {
        "p50": round(1e3 * percentile(values, 0.5), 3),
        "p99": round(1e3 * percentile(values, 0.99), 3),
    }


def figures(runs: Sequence[Run], without: Sequence[Run]) -> dict[str, Any]:
    """Return the figures of an engine under one load.

    Args:
        runs: the engine's run in each round.
        without: the runs of the engine without speculation in the same rounds.

    Returns:
        ``tokens_per_s`` and ``to_none``: medians over rounds, with lowest and highest;
        ``acceptance_length`` and ``per_position``: over steps that had drafts, as vLLM counts;
        ``tokens_per_step``: mean per request and step after its first, with or without drafts;
        ``first_token_ms``, ``inter_token_ms``: over all rounds together, the latter between the
        outputs of two steps; ``time_per_token_ms``: the same times per token.
    """
    speeds = [run.speed for run in runs]
    accepted = sum((run.acceptance for run in runs), AcceptanceCounts())
    later = [step for run in runs for step in run.later]
    tokens = sum(count for _, count in later)
    length = accepted.tokens_per_step
    return {
        "tokens_per_s": Summary.of(speeds, 1).as_dict(),
        "to_none": paired_ratio(speeds, [run.speed for run in without]).as_dict(),
        "acceptance_length": None if length is None else round(length, 3),
        "per_position": [round(share, 3) for share in accepted.per_position],
        "tokens_per_step": round(tokens / len(later), 3) if later else None,
        "first_token_ms": times_ms([seconds for run in runs for seconds in run.first_s]),
        "inter_token_ms": times_ms([seconds for seconds, _ in later]),
        "time_per_token_ms": round(1e3 * sum(s for s, _ in later) / tokens, 3) if tokens else None,
    }


def best_of(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the fastest configuration of each load, and of all categories of a load together.

    Ratios to no speculation are compared, because groups are measured one after another. No
    speculation is the best if no ratio exceeds 1.

    Returns:
        For each load its ``category``, ``temperature``, ``concurrency``, the best
        ``configuration``, its ratio ``to_none`` (for all categories together, the geometric mean)
        and ``in_every_round``: whether it was faster than no speculation in every round.
    """
    loads: dict[tuple[float, int], dict[str, dict[str, Any]]] = {}
    for row in rows:
        if row["configuration"] != NONE:
            load = loads.setdefault((row["temperature"], row["concurrency"]), {})
            load.setdefault(row["category"], {})[row["configuration"]] = row["to_none"]
    found = []
    for (temperature, concurrency), categories in loads.items():
        every = {**categories, EVERY: _joined(list(categories.values()))}
        if len(categories) == 1:
            del every[EVERY]
        for category, ratios in every.items():
            where: dict[str, Any] = {
                "category": category,
                "temperature": temperature,
                "concurrency": concurrency,
            }
            found.append({**where, **_best(ratios)})
    return found


def _joined(categories: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return each configuration's geometric mean ratios over all categories."""
    return {
        name: {
            key: round(statistics.geometric_mean([c[name][key] for c in categories]), 4)
            for key in ("median", "low", "high")
        }
        for name in categories[0]
    }


def _best(ratios: Mapping[str, Any]) -> dict[str, Any]:
    name = max(ratios, key=lambda n: ratios[n]["median"])
    if ratios[name]["median"] <= 1:
        return {"configuration": NONE, "to_none": 1.0, "in_every_round": False}
    ratio = ratios[name]
    return {
        "configuration": name,
        "to_none": ratio["median"],
        "in_every_round": ratio["low"] > 1,
    }
