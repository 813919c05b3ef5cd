"""Tiers: decode batches that verify the same number of drafts, and the sizes their graphs can have.

A FULL graph of a decode batch is captured for one number of tokens, of requests and of tokens per
request. ``vllm/v1/cudagraph_dispatcher.py:CudagraphDispatcher.dispatch`` looks it up by
``vllm/forward_context.py:BatchDescriptor``; see also ``uniform_token_count`` in
``vllm/v1/worker/gpu/cudagraph_utils.py:BatchExecutionDescriptor``. So twelve tokens of three
requests with K=3 and twelve tokens of four requests with K=2 need different graphs: tiers share no
graphs, and each graph belongs to one tier. Two tiers may have graphs with the same number of
tokens. vllm-ascend keys what its graphs need by tokens alone
(``vllm_ascend/compilation/acl_graph.py:set_graph_params``), so the code that captures them there
has to tell them apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from vllm_ascend_spec.errors import ConfigError

Range = tuple[int, int]


@dataclass(frozen=True)
class Tier:
    """Batches with ``k`` drafts for each request.

    Attributes:
        k: drafts; 0 for batches without.
        ranges: first and last number of requests of its batches, both inclusive, ascending.
    """

    k: int
    ranges: tuple[Range, ...]

    @property
    def query_len(self) -> int:
        """Tokens for each request: its drafts and one more."""
        return self.k + 1

    @property
    def last(self) -> int:
        """Requests of the largest batch."""
        return self.ranges[-1][1]

    def batches(self) -> Iterable[int]:
        """Return the batch sizes of this tier, ascending."""
        return (n for first, last in self.ranges for n in range(first, last + 1))


@dataclass(frozen=True)
class SizeGrid:
    """The sizes that a tier's graphs can have: multiples of one number of tokens.

    Attributes:
        stride: that number of tokens, a multiple of ``query_len``.
        unit: number of requests in one stride.
        least: strides of the smallest size that serves a batch of the tier.
        count: strides of the smallest size that serves every batch that can be served; 0 if none
            can.
    """

    stride: int
    unit: int
    least: int
    count: int

    @property
    def top(self) -> int:
        """Requests of the largest size."""
        return self.count * self.unit

    @property
    def sizes(self) -> int:
        """Number of sizes, from the smallest to the largest."""
        return max(0, self.count - self.least + 1)


def stride_of(k: int, divisor: int) -> int:
    """Return the least number of tokens that is a multiple of ``k + 1`` and of ``divisor``."""
    return math.lcm(k + 1, divisor)


def grid_of(
    tier: Tier, max_num_seqs: int, divisor: int = 1, max_tokens: int | None = None
) -> SizeGrid:
    """Return the sizes that can be captured for a tier and that its batches need.

    A graph of more than ``max_num_seqs`` requests cannot be captured: vLLM leaves it out
    (``vllm/v1/cudagraph_dispatcher.py:CudagraphDispatcher.initialize_cudagraph_keys``), because its
    runner has no such batch to capture it with.

    Args:
        tier: the tier that the sizes are for.
        max_num_seqs: most requests that the engine runs at once.
        divisor: divisor of all sizes, e.g. the tensor-parallel size with sequence parallelism.
        max_tokens: most tokens of a graph; None for no limit.
    """
    stride = stride_of(tier.k, divisor)
    unit = stride // tier.query_len
    most = max_num_seqs // unit
    if max_tokens is not None:
        most = min(most, max_tokens // stride)
    served = (min(last, most * unit) for first, last in tier.ranges if first <= most * unit)
    least = -(-tier.ranges[0][0] // unit)
    return SizeGrid(stride, unit, least, -(-max(served, default=0) // unit))


def sizes_of_tiers(
    sizes: Iterable[int], tiers: Sequence[Tier], max_num_seqs: int, divisor: int = 1
) -> dict[int, tuple[int, ...]]:
    """Return which of ``sizes`` can be captured for each K.

    Args:
        sizes: candidate sizes in tokens.
        tiers: tiers that batches belong to.
        max_num_seqs: most requests that the engine runs at once.
        divisor: divisor of all sizes, see :func:`grid_of`.
    """
    ordered = sorted(set(sizes))
    found = {}
    for tier in tiers:
        stride = stride_of(tier.k, divisor)
        most = max_num_seqs * tier.query_len
        found[tier.k] = tuple(n for n in ordered if n % stride == 0 and n <= most)
    return found


def tiers_of_drafts(max_num_seqs: int, drafts: Sequence[int]) -> tuple[Tier, ...]:
    """Return one tier for each K, each for batches of any size.

    Raises:
        ConfigError: there is no K, or a K is invalid or given twice.
    """
    check_count("max_num_seqs", max_num_seqs, 1)
    if not drafts:
        raise ConfigError("tiers", list(drafts), "is empty; valid: one K or more, e.g. 3")
    for k in drafts:
        check_count("num_speculative_tokens", k, 0)
    if len(set(drafts)) < len(drafts):
        nearest = ",".join(map(str, sorted(set(drafts))))
        raise ConfigError("tiers", list(drafts), f"a K is there twice; nearest: {nearest}")
    return tuple(Tier(k, ((1, max_num_seqs),)) for k in sorted(drafts))


def tiers_of_schedule(max_num_seqs: int, rows: Sequence[Sequence[int]]) -> tuple[Tier, ...]:
    """Return the tiers of a schedule of K; batches beyond the last row have its K.

    Args:
        max_num_seqs: most requests that the engine runs at once; rows beyond it have no batches.
        rows: first and last number of requests and their K, as in
            ``num_speculative_tokens_per_batch_size``.

    Raises:
        ConfigError: there are no rows, a row is invalid, or rows leave a gap or overlap.
    """
    check_count("max_num_seqs", max_num_seqs, 1)
    ranges: dict[int, list[Range]] = {}
    expected = 1
    for place, row in enumerate(rows):
        if len(row) != 3 or not all(_is_whole(n) for n in row):
            raise ConfigError("tiers", row, "is no row of three whole numbers: first, last, K")
        first, last, k = row
        if first != expected or last < first or k < 0:
            raise ConfigError(
                "tiers", list(row), f"valid: a row [{expected}, LAST, K], K of 0 or more"
            )
        expected = last + 1
        if place == len(rows) - 1:
            last = max(last, max_num_seqs)
        if first <= max_num_seqs:
            ranges.setdefault(k, []).append((first, min(last, max_num_seqs)))
    if not ranges:
        raise ConfigError("tiers", list(rows), "is empty; valid: rows like [1, 64, 3]")
    return tuple(Tier(k, tuple(ranges[k])) for k in sorted(ranges))


def tiers_of(max_num_seqs: int, tiers: int | Sequence[int] | Sequence[Tier]) -> tuple[Tier, ...]:
    """Return given tiers as they are, or the tiers of one K or of several.

    Raises:
        ConfigError: there are none, a K is given twice, or a batch has more requests than
            ``max_num_seqs``.
    """
    if isinstance(tiers, int):
        return tiers_of_drafts(max_num_seqs, [tiers])
    own = tuple(tier for tier in tiers if isinstance(tier, Tier))
    if not own or len(own) < len(tiers):
        return tiers_of_drafts(max_num_seqs, tiers)  # type: ignore[arg-type]
    if len({tier.k for tier in own}) < len(own):
        raise ConfigError("tiers", own, "a K is there twice; nearest: one tier with all its ranges")
    for tier in own:
        batches = list(tier.batches())
        ascending = all(before < after for before, after in pairwise(batches))
        if not batches or not ascending or batches[0] < 1 or batches[-1] > max_num_seqs:
            problem = f"valid: ranges that ascend within 1 to max_num_seqs={max_num_seqs}"
            raise ConfigError("tiers", tier.ranges, problem)
    return own


def check_count(option: str, value: object, least: int) -> None:
    """Check that a value is a whole number of at least ``least``.

    Raises:
        ConfigError: it is not; names the valid values.
    """
    if not _is_whole(value) or value < least:  # type: ignore[operator]
        raise ConfigError(option, value, f"valid: a whole number of {least} or more")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
