"""Which rule verifies sampled drafts, from the two options that have a say."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from vllm_ascend_spec.config.schema import SECTION, VERIFY_RULES
from vllm_ascend_spec.errors import ConfigError

METHOD = "speculative_config.rejection_sample_method"
SYNTHETIC_OPTIONS = ("synthetic_acceptance_rates", "synthetic_acceptance_length")
# vLLM's names; "standard" leaves the choice to verify_rule.
STANDARD, BLOCK, SYNTHETIC = METHODS = ("standard", "block", "synthetic")


def resolve_rule(method: str | None, section: Mapping[str, Any]) -> str:
    """Return the rule, one of :data:`VERIFY_RULES`.

    Args:
        method: ``rejection_sample_method`` as given, None if it was not.
        section: our section of ``--additional-config``.

    Raises:
        ConfigError: the method is unknown, or ``verify_rule`` contradicts it.
    """
    method = method or STANDARD
    if method not in METHODS:
        raise ConfigError(METHOD, method, f"valid: {', '.join(map(repr, METHODS))}")
    wanted = section.get("verify_rule")
    if method == STANDARD or wanted is None:
        return BLOCK if method == BLOCK else wanted or VERIFY_RULES[0]
    if method == SYNTHETIC or wanted != BLOCK:
        raise ConfigError(
            f"additional_config.{SECTION}.verify_rule",
            wanted,
            f"contradicts {METHOD}={method!r}; give one of the two",
        )
    return BLOCK


def check_synthetic(spec: Mapping[str, Any]) -> None:
    """Check the options of synthetic acceptance; elsewhere they have no effect.

    Raises:
        ConfigError: naming the option, its value and what is valid.
    """
    given = [name for name in SYNTHETIC_OPTIONS if spec.get(name) is not None]
    if spec.get("rejection_sample_method") != SYNTHETIC:
        for name in given:
            raise ConfigError(
                f"speculative_config.{name}", spec[name], f"needs {METHOD}={SYNTHETIC!r}"
            )
        return
    if len(given) != 1:
        raise ConfigError(
            METHOD, SYNTHETIC, f"give one of {' and '.join(SYNTHETIC_OPTIONS)}, not {len(given)}"
        )
    if spec.get("draft_sample_method", "greedy") != "greedy":
        raise ConfigError(
            "speculative_config.draft_sample_method",
            spec["draft_sample_method"],
            f"has no effect with {METHOD}={SYNTHETIC!r}",
        )
    num_drafts, value = spec.get("num_speculative_tokens"), spec[given[0]]
    if isinstance(num_drafts, int):
        _CHECKS[given[0]](value, num_drafts)


def _check_rates(rates: Any, num_drafts: int) -> None:
    fits = (
        isinstance(rates, list | tuple)
        and len(rates) == num_drafts
        and all(isinstance(rate, int | float) and 0 <= rate <= 1 for rate in rates)
        and all(later <= rate for rate, later in pairwise(rates))
    )
    if not fits:
        raise ConfigError(
            f"speculative_config.{SYNTHETIC_OPTIONS[0]}",
            rates,
            f"valid: {num_drafts} numbers in [0, 1], none larger than the one before it",
        )


def _check_length(length: Any, num_drafts: int) -> None:
    if not isinstance(length, int | float) or not 1 <= length <= num_drafts + 1:
        raise ConfigError(
            f"speculative_config.{SYNTHETIC_OPTIONS[1]}",
            length,
            f"valid: a number from 1 to {num_drafts + 1}",
        )


_CHECKS = dict(zip(SYNTHETIC_OPTIONS, (_check_rates, _check_length), strict=True))
