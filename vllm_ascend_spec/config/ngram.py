"""Checks of the options of method ``ngram``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.errors import ConfigError

LOOKUP_MIN, LOOKUP_MAX = "prompt_lookup_min", "prompt_lookup_max"


def check_ngram(spec: Mapping[str, Any]) -> None:
    """Check the shortest and the longest n-gram to look for; one that is not set is the other.

    Raises:
        ConfigError: one of them is no length, or the shortest is longer than the longest.
    """
    given = {key: spec[key] for key in (LOOKUP_MIN, LOOKUP_MAX) if spec.get(key) is not None}
    for key, length in given.items():
        if not isinstance(length, int) or isinstance(length, bool) or length < 1:
            raise ConfigError(
                f"speculative_config.{key}", length, "valid: a whole number from 1 on"
            )
    if len(given) == 2 and given[LOOKUP_MIN] > given[LOOKUP_MAX]:
        raise ConfigError(
            f"speculative_config.{LOOKUP_MIN}",
            given[LOOKUP_MIN],
            f"valid: up to {LOOKUP_MAX}, which is {given[LOOKUP_MAX]}",
        )
