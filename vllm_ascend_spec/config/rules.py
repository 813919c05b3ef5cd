"""Which rule verifies sampled drafts, from the two options that choose it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from vllm_ascend_spec.config.method import Method
from vllm_ascend_spec.config.options import DRAFT_SAMPLE_METHODS, RULE_METHODS
from vllm_ascend_spec.config.schema import SECTION, SEEDED, TOKEN, VERIFY_RULES
from vllm_ascend_spec.config.values import number
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.upstream.limits import NO_BLOCK_METHOD

OPTION = "speculative_config.rejection_sample_method"
SYNTHETIC_OPTIONS = ("synthetic_acceptance_rates", "synthetic_acceptance_length")
STANDARD, BLOCK, SYNTHETIC = RULE_METHODS
AUTO, GREEDY, PROBABILISTIC = DRAFT_SAMPLE_METHODS
# Which sampled requests without a seed are given one.
NONE, WITH_TOP_K, ALL = "none", "top_k", "all"
# With a larger top-k some drafts gain and others lose.
MOST_TOP_K = 20


def resolve_rule(method: str, section: Mapping[str, Any]) -> str:
    """Return the rule: one of :data:`VERIFY_RULES`, or ``synthetic``, which is not lossless.

    Args:
        method: ``rejection_sample_method``.
        section: our section of ``--additional-config``.

    Raises:
        ConfigError: the method is unknown, here or to this version, or contradicts ``verify_rule``.
    """
    if method not in RULE_METHODS:
        raise ConfigError(OPTION, method, f"valid: {', '.join(map(repr, RULE_METHODS))}")
    if method == BLOCK and NO_BLOCK_METHOD is not None:
        remedy = f"give additional_config.{SECTION}.verify_rule={BLOCK!r}"
        raise ConfigError(OPTION, method, f"not possible with {NO_BLOCK_METHOD}; {remedy}")
    wanted = section.get("verify_rule")
    if method == STANDARD:
        return wanted or VERIFY_RULES[0]
    if wanted not in (None, method):
        raise ConfigError(
            f"additional_config.{SECTION}.verify_rule",
            wanted,
            f"contradicts {OPTION}={method!r}; give one of the two",
        )
    return method


def seeds_for(rule: str, section: Mapping[str, Any], draft_sample_method: str) -> str:
    """Return which sampled requests without a seed are given a hidden one.

    Drafts of requests with a seed follow the request's top-k, and then more are accepted than by
    the token rule (docs/performance.md). So these requests get one, unless the user chose the rule.

    Args:
        rule: as :func:`resolve_rule` returned it.
        section: our section of ``--additional-config``.
        draft_sample_method: how the drafts are picked.
    """
    if rule == SEEDED:
        return ALL
    is_left_to_us = rule == TOKEN and section.get("verify_rule") is None
    return WITH_TOP_K if is_left_to_us and draft_sample_method == PROBABILISTIC else NONE


def rule_warnings(rule: str, method: Method, draft_sample_method: str) -> list[str]:
    """Return what a user who chose ``rule`` should know.

    Args:
        rule: as :func:`resolve_rule` returned it.
        method: the drafting method.
        draft_sample_method: how the drafts are picked.
    """
    if rule == SYNTHETIC:
        return [
            "rejection_sample_method='synthetic' accepts drafts at given rates: the output is not "
            "the target's and acceptance is made up; use it for benchmarks only."
        ]
    if rule == BLOCK and not method.can_sample_drafts:
        return [
            "The block rule accepts no more drafts than the token rule with method "
            f"{method.name!r}, which cannot sample its drafts."
        ]
    if rule == BLOCK and draft_sample_method == GREEDY:
        return [
            "The block rule accepts no more drafts than the token rule if drafts are greedy; it "
            "gains if they are sampled."
        ]
    return []


def check_synthetic(spec: Mapping[str, Any]) -> None:
    """Check the options of synthetic acceptance, and refuse them with other rules.

    Args:
        spec: the speculative config; its ``num_speculative_tokens`` has been checked.

    Raises:
        ConfigError: naming the option, its value and what is valid.
    """
    given = [name for name in SYNTHETIC_OPTIONS if spec.get(name) is not None]
    if spec.get("rejection_sample_method") != SYNTHETIC:
        for name in given:
            raise ConfigError(
                f"speculative_config.{name}", spec[name], f"needs {OPTION}={SYNTHETIC!r}"
            )
        return
    if len(given) != 1:
        names = " or ".join(SYNTHETIC_OPTIONS)
        raise ConfigError(OPTION, SYNTHETIC, f"needs either {names}; {len(given)} are given")
    if spec.get("draft_sample_method", AUTO) not in (AUTO, GREEDY):
        raise ConfigError(
            "speculative_config.draft_sample_method",
            spec["draft_sample_method"],
            f"has no effect with {OPTION}={SYNTHETIC!r}",
        )
    _CHECKS[given[0]](spec[given[0]], spec["num_speculative_tokens"])


def _check_rates(rates: Any, max_k: int) -> None:
    check = number(0, 1)
    fits = (
        isinstance(rates, list | tuple)
        and len(rates) == max_k
        and not any(map(check, rates))
        and all(later <= rate for rate, later in pairwise(rates))
    )
    if not fits:
        raise ConfigError(
            f"speculative_config.{SYNTHETIC_OPTIONS[0]}",
            rates,
            f"valid: {max_k} numbers in [0, 1], none larger than the one before it",
        )


def _check_length(length: Any, max_k: int) -> None:
    if problem := number(1, max_k + 1)(length):
        raise ConfigError(f"speculative_config.{SYNTHETIC_OPTIONS[1]}", length, problem)


_CHECKS = dict(zip(SYNTHETIC_OPTIONS, (_check_rates, _check_length), strict=True))
