"""Speculation of the engines that ``train`` starts: with a head, or with what needs none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vllm_ascend_spec.checkpoint.speculators import PROPOSED
from vllm_ascend_spec.config.additional import section_of
from vllm_ascend_spec.config.schema import SECTION, WITHOUT_SPECULATION
from vllm_ascend_spec.methods.suffix.checks import library_problem

ADDITIONAL = "additional_config"
# Options of our section that are refused where no head drafts.
OF_HEADS = frozenset({"draft_loop", "draft_window"})
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


def section_for(engine: Mapping[str, Any], spec: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return those options of our section that an engine with some speculation takes.

    Args:
        engine: arguments of the user's for engines.
        spec: the engine's ``speculative_config``.
    """
    section = section_of(engine.get(ADDITIONAL))
    if spec is None:
        return {name: value for name, value in section.items() if name in WITHOUT_SPECULATION}
    if "model" in spec:
        return dict(section)
    return {name: value for name, value in section.items() if name not in OF_HEADS}


def with_section(engine: Mapping[str, Any], section: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments for engines with another section of ours.

    Args:
        engine: arguments of the user's for engines.
        section: empty for none.
    """
    others = {key: value for key, value in engine.items() if key != ADDITIONAL}
    given = {key: value for key, value in (engine.get(ADDITIONAL) or {}).items() if key != SECTION}
    additional = {**given, SECTION: dict(section)} if section else given
    return {**others, ADDITIONAL: additional} if additional else others
