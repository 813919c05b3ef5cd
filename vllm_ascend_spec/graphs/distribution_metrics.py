"""Read from a running server's metrics which batches it decoded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Protocol

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.graphs.batch_distribution import BatchDistribution
from vllm_ascend_spec.graphs.tiers import Tier

# Histogram of requests per decode batch, by K: this package's, if the engine publishes it.
REQUESTS = "vllm:spec_decode_batch_requests"
# Histogram of tokens per engine step, prefill included: vLLM's own, always published.
TOKENS = "vllm:iteration_tokens_total"
BUCKET = "_bucket"

# Number of observations in each bucket, by the bucket's upper bound.
Buckets = dict[float, float]


class Sample(Protocol):
    """The part of ``prometheus_client.samples.Sample`` that is read."""

    @property
    def name(self) -> str:
        """Name of the series."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of the series."""

    @property
    def value(self) -> float:
        """Current value."""


def load_of(
    samples: Iterable[Sample], source: str, tiers: tuple[Tier, ...], max_num_seqs: int
) -> BatchDistribution:
    """Return the load that a server's histograms show.

    The histogram of requests per batch is read if the server has it, else vLLM's histogram of
    tokens per engine step. The latter is coarser: batches within the range of a bucket are assumed
    to be equally frequent, and steps with prefill are included. Engines of one server add up.

    Args:
        samples: samples of the server's metrics.
        source: where they are from, for the report.
        tiers: tiers in use.
        max_num_seqs: most requests that the engine runs at once.

    Raises:
        ConfigError: neither histogram has counts that can be read.
    """
    found = [s for s in samples if s.name in (REQUESTS + BUCKET, TOKENS + BUCKET)]
    by_k = _buckets([s for s in found if s.name == REQUESTS + BUCKET])
    if any(sum(buckets.values()) for buckets in by_k.values()):
        return _from_requests(by_k, source, max_num_seqs)
    (tokens,) = _buckets([s for s in found if s.name == TOKENS + BUCKET]).values() or ({},)
    if not sum(tokens.values()):
        problem = f"no counts in it; expected the histogram {REQUESTS} or {TOKENS}"
        raise ConfigError("load", source, problem)
    if len(tiers) > 1:
        problem = f"has {TOKENS} only, which does not show K; valid with one K, or a file of counts"
        raise ConfigError("load", source, problem)
    return _from_tokens(tokens, source, tiers[0], max_num_seqs)


def _buckets(samples: Iterable[Sample]) -> dict[int | None, Buckets]:
    """Return the buckets by K; those of series without a label ``k`` are under None."""
    upto: dict[int | None, Buckets] = {}
    for sample in samples:
        k = int(sample.labels["k"]) if "k" in sample.labels else None
        bounds = upto.setdefault(k, {})
        bound = float(sample.labels["le"])
        bounds[bound] = bounds.get(bound, 0.0) + sample.value
    return {k: _apart(bounds) for k, bounds in upto.items()}


def _apart(bounds: Buckets) -> Buckets:
    """Return the count of each bucket alone; those of Prometheus include all smaller buckets."""
    ascending = [(0.0, 0.0), *sorted(bounds.items())]
    return {high: count - less for (_, less), (high, count) in pairwise(ascending)}


def _from_requests(
    by_k: Mapping[int | None, Buckets], source: str, max_num_seqs: int
) -> BatchDistribution:
    rows = {
        k: _spread(buckets, 1, max_num_seqs, f"{REQUESTS} of {source}")[0]
        for k, buckets in by_k.items()
    }
    name = f"{REQUESTS} of {source}"
    if None in rows:
        return BatchDistribution(name, rows[None])
    return BatchDistribution(name, by_k={k: row for k, row in rows.items() if k is not None})


def _from_tokens(buckets: Buckets, source: str, tier: Tier, max_num_seqs: int) -> BatchDistribution:
    name = f"{TOKENS} of {source}"
    counts, wider = _spread(buckets, tier.query_len, max_num_seqs, "")
    if wider:
        name += f", without {wider / sum(buckets.values()):.0%} of steps, too wide for decoding"
    return BatchDistribution(name, counts)


def _spread(
    buckets: Buckets, stride: int, max_num_seqs: int, exact: str
) -> tuple[tuple[float, ...], float]:
    """Return the counts of batches of 1, 2, … requests, and the count of larger ones.

    Args:
        buckets: counts by upper bound, in multiples of ``1 / stride`` requests.
        stride: tokens per request.
        max_num_seqs: most requests that the engine runs at once.
        exact: name of the source if larger batches are an error in it, else empty.
    """
    counts, wider = [0.0] * max_num_seqs, 0.0
    for (low, _), (high, count) in pairwise([(0.0, 0.0), *sorted(buckets.items())]):
        if count <= 0:
            continue
        first = math.floor(low / stride) + 1
        last = max_num_seqs if math.isinf(high) else math.floor(high / stride)
        if first > max_num_seqs:
            if exact:
                problem = f"has batches of {first} requests and more; max_num_seqs={max_num_seqs}"
                raise ConfigError("load", exact, problem)
            wider += count
            continue
        # If a bucket is narrower than one request, its steps are padded to the next request.
        last = max(first, min(last, max_num_seqs))
        for requests in range(first, last + 1):
            counts[requests - 1] += count / (last - first + 1)
    return tuple(counts), wider
