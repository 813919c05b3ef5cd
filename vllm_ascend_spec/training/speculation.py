"""Speculation of the engines that ``train`` starts: with a head, or with what needs none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vllm_ascend_spec.checkpoint.speculators import PROPOSED
from vllm_ascend_spec.methods.suffix.checks import library_problem

SUFFIX: dict[str, Any] = {"method": "suffix", "num_speculative_tokens": 8}
NGRAM: dict[str, Any] = {
    "method": "ngram",
    "num_speculative_tokens": 5,
    "prompt_lookup_min": 2,
    "prompt_lookup_max": 4,
}


def with_head(method: str, head: Path, num_speculative_tokens: int) -> dict[str, Any]:
    """Return the ``speculative_config`` of a head.

    Args:
        method: of the head, as the speculators library names it.
        head: its folder.
        num_speculative_tokens: drafts per step.
    """
    return {
        "method": method,
        **PROPOSED.get(method, {}),
        "model": str(head),
        "num_speculative_tokens": num_speculative_tokens,
    }


def without_head() -> dict[str, Any]:
    """Return the ``speculative_config`` of what drafts without one: suffix trees, or n-grams."""
    return SUFFIX if library_problem() is None else NGRAM
