"""What ``benchmarks trees`` compares: chains and trees of as many rows, and the choice of K."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ZOO = Path("examples/zoo")
# Method, the folder of its draft, and the most drafts that follow each other.
METHODS: dict[str, tuple[str | None, int | None]] = {
    "eagle": ("eagle", None),
    "eagle3": ("eagle3", None),
    "mtp": ("target-mimo", None),
    "draft_model": ("draft", None),
    "medusa": ("medusa", 4),
    "ngram": (None, None),
    "suffix": (None, None),
}
# Their targets, and options that the zoo's record has, too.
TARGETS = {"mtp": "target-mimo"}
OPTIONS: dict[str, dict[str, Any]] = {
    "ngram": {"prompt_lookup_min": 2, "prompt_lookup_max": 4},
    "suffix": {"suffix_decoding_max_cached_requests": 0},
}


def target_of(method: str) -> str:
    """Return the folder of the model that a method drafts for."""
    return str(ZOO / TARGETS.get(method, "target"))


def spec_of(method: str) -> dict[str, Any]:
    """Return the speculative config of a method without the number of drafts."""
    folder, _ = METHODS[method]
    spec = {"method": method, **OPTIONS.get(method, {})}
    if folder is not None:
        spec |= {"model": str(ZOO / folder)}
    if folder is not None and method != "medusa":
        # Those of trees are the likeliest tokens, too.
        spec |= {"draft_sample_method": "greedy"}
    return spec


def chain(method: str, drafts: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the config and our options of a chain, as long as the method can make it."""
    most = METHODS[method][1] or drafts
    spec = {**spec_of(method), "num_speculative_tokens": min(drafts, most)}
    return spec, {"verify_rule": "seeded"}


def tree(method: str, drafts: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the config and our options of a tree."""
    return spec_of(method), {"tree": drafts}


def adaptive(method: str, drafts: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the config and our options of a choice among chains and parts of a tree."""
    return spec_of(method), {"tree": drafts, "draft_length": "adaptive"}
