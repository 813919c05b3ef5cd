"""Loads from a running server's metrics: which batches it decoded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Protocol

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.graphs.load import Load
from vllm_ascend_spec.graphs.tiers import Tier

# Requests of each decode batch, by K: this package's, where the engine publishes it.
REQUESTS = "vllm:spec_decode_batch_requests"
# Tokens of each engine step, prefill included: vLLM's own, always there.
TOKENS = "vllm:iteration_tokens_total"
BUCKET = "_bucket"

# Upper bounds of buckets, and how many observations each has by itself.
Buckets = dict[float, float]


class Sample(Protocol):
    """What is read of ``prometheus_client.samples.Sample``."""

    @property
    def name(self) -> str:
        """Of the series."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Of the series."""

    @property
    def value(self) -> float:
        """Now."""


def load_of(
    samples: Iterable[Sample], source: str, tiers: tuple[Tier, ...], max_num_seqs: int
) -> Load:
    """Return the load that a server's histograms tell.

    The histogram of batches by requests is read where the server has it. Else it is vLLM's
    histogram of tokens by engine step, which is coarser: a bucket stands for a range, whose batches
    are taken to be equally frequent, and steps with a prefill are among them. Engines of one server
    add up.

    Args:
        samples: of the server's metrics.
        source: where they are from, for the report.
        tiers: in use.
        max_num_seqs: of the engine.

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
        problem = f"has {TOKENS} only, which does not tell K; valid with one K, or a file of counts"
        raise ConfigError("load", source, problem)
    return _from_tokens(tokens, source, tiers[0], max_num_seqs)


def _buckets(samples: Iterable[Sample]) -> dict[int | None, Buckets]:
    """Return the buckets by K; None where series do not say theirs."""
    upto: dict[int | None, Buckets] = {}
    for sample in samples:
        k = int(sample.labels["k"]) if "k" in sample.labels else None
        bounds = upto.setdefault(k, {})
        bound = float(sample.labels["le"])
        bounds[bound] = bounds.get(bound, 0.0) + sample.value
    return {k: _apart(bounds) for k, bounds in upto.items()}


def _apart(bounds: Buckets) -> Buckets:
    """Return what each bucket has by itself; Prometheus has each with all smaller ones."""
    ascending = [(0.0, 0.0), *sorted(bounds.items())]
    return {high: count - less for (_, less), (high, count) in pairwise(ascending)}


def _from_requests(by_k: Mapping[int | None, Buckets], source: str, max_num_seqs: int) -> Load:
    rows = {
        k: _spread(buckets, 1, max_num_seqs, f"{REQUESTS} of {source}")[0]
        for k, buckets in by_k.items()
    }
    name = f"{REQUESTS} of {source}"
    if None in rows:
        return Load(name, rows[None])
    return Load(name, by_k={k: row for k, row in rows.items() if k is not None})


def _from_tokens(buckets: Buckets, source: str, tier: Tier, max_num_seqs: int) -> Load:
    name = f"{TOKENS} of {source}"
    counts, wider = _spread(buckets, tier.query_len, max_num_seqs, "")
    if wider:
        name += f", without {wider / sum(buckets.values()):.0%} of steps, too wide for decoding"
    return Load(name, counts)


def _spread(
    buckets: Buckets, stride: int, max_num_seqs: int, exact: str
) -> tuple[tuple[float, ...], float]:
    """Return the counts of batches of 1, 2, … requests, and those of wider ones.

    Args:
        buckets: by upper bound, in multiples of ``1 / stride`` requests.
        stride: tokens for each request.
        max_num_seqs: of the engine.
        exact: the name of a source in which wider batches are a mistake; empty for none.
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
        # A bucket narrower than one request: its steps are padded to the next one.
        last = max(first, min(last, max_num_seqs))
        for requests in range(first, last + 1):
            counts[requests - 1] += count / (last - first + 1)
    return tuple(counts), wider
