"""Counters of verified and accepted drafts, by method and K, and by method and position.

vLLM's own counters, ``vllm:spec_decode_num_*``, are sums over these labels.
"""

from __future__ import annotations

import functools
from typing import Any

from vllm_ascend_spec.control.told import Told
from vllm_ascend_spec.metrics.group import Group, counter
from vllm_ascend_spec.upstream.draft_counts import by_position

REQUESTS = "vllm:spec_decode_verified_requests"
TOKENS = "vllm:spec_decode_verified_tokens"
DRAFTED = "vllm:spec_decode_position_drafts"
ACCEPTED = "vllm:spec_decode_position_accepted"


class Verified(Group):
    """The four counters."""

    def __init__(self) -> None:
        by_k, by_position = ("method", "k"), ("method", "position")
        self.requests = counter(REQUESTS, "Verifications of k drafts, by request and step.", *by_k)
        self.tokens = counter(TOKENS, "Tokens that they gave, the last one included.", *by_k)
        self.drafted = counter(DRAFTED, "Drafts that were verified, by position.", *by_position)
        self.accepted = counter(ACCEPTED, "Of these, the accepted ones.", *by_position)
        super().__init__((self.requests, self.tokens, self.drafted, self.accepted))


@functools.cache
def _verified() -> Verified:
    return Verified()


def count_verified(told: Told, positions: Any = None, engine: int = 0) -> None:
    """Count verified and accepted drafts.

    Args:
        told: what the scheduler reports of them.
        positions: vLLM's ``SpecDecodingStats`` of the same step; None without drafts.
        engine: number of the engine; 0 if there is only one.
    """
    counters, labels = _verified(), (str(engine), told.method)
    for k, (requests, accepted) in told.verified.items():
        counters.of(counters.requests, *labels, str(k)).inc(requests)
        counters.of(counters.tokens, *labels, str(k)).inc(requests + accepted)
    if positions is None:
        return
    for place, (drafts, accepted) in enumerate(by_position(positions)):
        if drafts:
            counters.of(counters.drafted, *labels, str(place)).inc(drafts)
            counters.of(counters.accepted, *labels, str(place)).inc(accepted)
