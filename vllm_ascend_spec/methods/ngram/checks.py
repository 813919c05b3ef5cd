"""Check that the options of method ``ngram`` fit together."""

from __future__ import annotations

from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.errors import ConfigError

LOOKUP_MIN, LOOKUP_MAX = "prompt_lookup_min", "prompt_lookup_max"


def check_ngram(request: SpecInput) -> None:
    """Check the shortest and the longest n-gram to look for; if one is unset, both are equal.

    Raises:
        ConfigError: the minimum exceeds the maximum.
    """
    spec = request.spec
    shortest, longest = spec.get(LOOKUP_MIN), spec.get(LOOKUP_MAX)
    if shortest is not None and longest is not None and shortest > longest:
        raise ConfigError(
            f"speculative_config.{LOOKUP_MIN}",
            shortest,
            f"valid: up to {LOOKUP_MAX}, which is {longest}",
        )
