"""Loads: how often batches of each size are decoded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.graphs.tiers import Tier

NAMES = ("uniform", "zipf")


@dataclass(frozen=True)
class BatchDistribution:
    """Counts of batches; only their proportions matter.

    Attributes:
        name: description for a report.
        counts: ``[max_num_seqs]``, counts of batches of 1, 2, … requests with any K.
        by_k: the same by K, if that is known; ``counts`` is not read then.
    """

    name: str
    counts: tuple[float, ...] = ()
    by_k: Mapping[int, tuple[float, ...]] | None = None


def uniform(max_num_seqs: int) -> BatchDistribution:
    """Return a load in which each batch size is as frequent as any other."""
    return BatchDistribution("uniform", (1.0,) * max_num_seqs)


def zipf(max_num_seqs: int) -> BatchDistribution:
    """Return a load in which a batch of n requests has the weight 1/n."""
    return BatchDistribution("zipf", tuple(1.0 / n for n in range(1, max_num_seqs + 1)))


def normal(max_num_seqs: int, mean: float, deviation: float) -> BatchDistribution:
    """Return a normal distribution around ``mean`` requests within 1 to ``max_num_seqs``."""
    if not 0 < deviation < math.inf or not math.isfinite(mean):
        raise ConfigError("load", (mean, deviation), "valid: a mean and a deviation above 0")
    # The nearest batch size has weight 1, so that weights do not vanish if the mean is far outside.
    nearest = min(max(mean, 1), max_num_seqs)
    best = ((nearest - mean) / deviation) ** 2
    weights = (
        math.exp((best - ((n - mean) / deviation) ** 2) / 2) for n in range(1, max_num_seqs + 1)
    )
    return BatchDistribution(f"normal({mean:g}, {deviation:g})", tuple(weights))


def weights_of(
    load: BatchDistribution, tiers: Sequence[Tier], max_num_seqs: int
) -> dict[int, tuple[float, ...]]:
    """Return how often each tier decodes batches of each size.

    If the load is not counted by K, each batch goes to the tier that serves its size. If several
    tiers do, it is split equally among them.

    Args:
        load: the load as counted.
        tiers: tiers in use.
        max_num_seqs: most requests that the engine runs at once.

    Returns:
        By K, ``[max_num_seqs]`` shares of batches of 1, 2, … requests; all K together add up to 1.

    Raises:
        ConfigError: a count is invalid, no batch was counted, or a K or a batch is in no tier.
    """
    counts = load.by_k if load.by_k is not None else {None: load.counts}
    for row in counts.values():
        _check(load, row, max_num_seqs)
    served = {tier.k: frozenset(tier.batches()) for tier in tiers}
    if load.by_k is not None:
        _check_tiers(load.by_k, served)
        weights = {k: load.by_k.get(k, (0.0,) * max_num_seqs) for k in served}
    else:
        share = [sum(n in batches for batches in served.values()) for n in _sizes(max_num_seqs)]
        weights = {
            k: tuple(
                load.counts[n - 1] / share[n - 1] if n in batches else 0.0
                for n in _sizes(max_num_seqs)
            )
            for k, batches in served.items()
        }
    total = math.fsum(math.fsum(row) for row in weights.values())
    if total <= 0:
        raise ConfigError("load", load.name, "counts no batch of the tiers; valid: one at least")
    return {k: tuple(count / total for count in row) for k, row in weights.items()}


def _sizes(max_num_seqs: int) -> range:
    return range(1, max_num_seqs + 1)


def _check(load: BatchDistribution, counts: Sequence[float], max_num_seqs: int) -> None:
    if len(counts) != max_num_seqs:
        problem = f"has counts for {len(counts)} batch sizes; valid: {max_num_seqs}, max_num_seqs"
        raise ConfigError("load", load.name, problem)
    for size, count in enumerate(counts, start=1):
        if not 0 <= count < math.inf:
            problem = f"the count of batches of {size} is {count}; valid: 0 or more"
            raise ConfigError("load", load.name, problem)


def _check_tiers(by_k: Mapping[int, Sequence[float]], served: Mapping[int, frozenset[int]]) -> None:
    for k, row in by_k.items():
        outside = (n for n, count in enumerate(row, 1) if count and n not in served.get(k, ()))
        size = next(outside, None)
        if size is not None:
            valid = ", ".join(map(str, sorted(served)))
            problem = f"counts batches of {size} with K={k}, which no tier has; tiers: {valid}"
            raise ConfigError("load", k, f"{problem}; nearest: add that one to the tiers")
