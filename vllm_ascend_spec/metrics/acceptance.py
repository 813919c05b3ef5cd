"""Acceptance of drafts, from the counters that vLLM keeps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from vllm_ascend_spec.metrics.prometheus import read_samples

PREFIX = "vllm:spec_decode_"
# Suffix of a counter's sample; each counter has another sample with its creation time.
TOTAL = "_total"
PER_POSITION = "num_accepted_tokens_per_pos"


@dataclass(frozen=True)
class AcceptanceCounts:
    """Counts over some time; subtract an earlier snapshot to get those in between.

    Attributes:
        num_drafts: verifications that had drafts, counted per request and step.
        num_draft_tokens: tokens drafted.
        num_accepted_tokens: drafted tokens that were accepted.
        accepted_per_position: of these, how many at each draft position.
    """

    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    accepted_per_position: tuple[int, ...] = field(default_factory=tuple)

    def __sub__(self, earlier: AcceptanceCounts) -> AcceptanceCounts:
        after, before = self.accepted_per_position, earlier.accepted_per_position
        width = max(len(after), len(before))
        places = zip(_padded(after, width), _padded(before, width), strict=True)
        return AcceptanceCounts(
            self.num_drafts - earlier.num_drafts,
            self.num_draft_tokens - earlier.num_draft_tokens,
            self.num_accepted_tokens - earlier.num_accepted_tokens,
            tuple(a - b for a, b in places),
        )

    def __add__(self, other: AcceptanceCounts) -> AcceptanceCounts:
        return self - (AcceptanceCounts() - other)

    @property
    def tokens_per_step(self) -> float | None:
        """Mean acceptance length: accepted drafts per verification, plus the one extra token."""
        return 1 + self.num_accepted_tokens / self.num_drafts if self.num_drafts else None

    @property
    def rate(self) -> float | None:
        """Share of drafted tokens that were accepted."""
        if not self.num_draft_tokens:
            return None
        return self.num_accepted_tokens / self.num_draft_tokens

    @property
    def per_position(self) -> list[float]:
        """Share of verifications that accepted the draft at each position."""
        if not self.num_drafts:
            return []
        return [count / self.num_drafts for count in self.accepted_per_position]


def _padded(counts: tuple[int, ...], width: int) -> tuple[int, ...]:
    return counts + (0,) * (width - len(counts))


def from_prometheus(text: str) -> AcceptanceCounts:
    """Read a server's ``/metrics``, summed over its engines."""
    counts: dict[str, int] = {}
    positions: dict[int, int] = {}
    for sample in read_samples(text, PREFIX):
        if not sample.name.endswith(TOTAL):
            continue
        name = sample.name.removeprefix(PREFIX).removesuffix(TOTAL)
        # Other counters have positions too.
        if name == PER_POSITION:
            place = int(sample.labels["position"])
            positions[place] = positions.get(place, 0) + int(sample.value)
        else:
            counts[name] = counts.get(name, 0) + int(sample.value)
    return _build(counts, [positions[index] for index in sorted(positions)])


def from_engine(metrics: Iterable[Any]) -> AcceptanceCounts:
    """Read what ``LLM.get_metrics()`` returns (the engine needs ``disable_log_stats=False``)."""
    counts: dict[str, int] = {}
    positions: list[int] = []
    for metric in metrics:
        if not metric.name.startswith(PREFIX):
            continue
        if hasattr(metric, "values"):
            positions = list(metric.values)
        elif hasattr(metric, "value"):  # our histograms, which engines with graphs have, do not
            counts[metric.name.removeprefix(PREFIX)] = int(metric.value)
    return _build(counts, positions)


def added_up(stats: Iterable[Any]) -> AcceptanceCounts:
    """Sum vLLM's ``SpecDecodingStats`` over a scheduler's steps."""
    total = AcceptanceCounts()
    for step in stats:
        places = tuple(step.num_accepted_tokens_per_pos)
        total += AcceptanceCounts(
            step.num_drafts, step.num_draft_tokens, step.num_accepted_tokens, places
        )
    return total


def _build(counts: dict[str, int], positions: list[int]) -> AcceptanceCounts:
    return AcceptanceCounts(
        counts.get("num_drafts", 0),
        counts.get("num_draft_tokens", 0),
        counts.get("num_accepted_tokens", 0),
        tuple(positions),
    )
