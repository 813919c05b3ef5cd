"""Read vLLM's statistics of drafts by position; since 0.30 they count all drafts, too."""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.upstream.ranges import vllm_is


def by_position(stats: Any) -> list[tuple[int, int]]:
    """Return (drafts, accepted) for each position; empty where vLLM does not count drafts.

    Args:
        stats: vLLM's ``SpecDecodingStats``.
    """
    if vllm_is(">=0.30"):
        drafted, accepted = stats.num_draft_tokens_per_pos, stats.num_accepted_tokens_per_pos
        return list(zip(drafted, accepted, strict=True))
    return []
