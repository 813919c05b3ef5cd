"""Speculation of the engines that ``train`` starts: with a head, or with what needs none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vllm_ascend_spec.methods.suffix.checks import library_problem

# vLLM's names of the methods of heads that are trained, with what these need beside the head.
HEADS: dict[str, dict[str, Any]] = {
    "eagle": {"method": "eagle"},
    "eagle3": {"method": "eagle3"},
    "peagle": {"method": "eagle3", "parallel_drafting": True},
    "dflash": {"method": "dflash"},
    "mtp": {"method": "mtp"},
}
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
        method: a key of :data:`HEADS`.
        head: its folder.
        num_speculative_tokens: drafts per step.
    """
    return {
        **HEADS[method],
        "model": str(head),
        "num_speculative_tokens": num_speculative_tokens,
    }


def without_head() -> dict[str, Any]:
    """Return the ``speculative_config`` of what drafts without one: suffix trees, or n-grams."""
    return SUFFIX if library_problem() is None else NGRAM
