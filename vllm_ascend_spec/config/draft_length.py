"""Whether K is fixed or chosen from step to step, and from which values.

With ``auto`` a step has K drafts or 0, or always K if something in the engine rules out a K that
changes. This module checks the options; ``platform/dynamic_k.py`` checks what only vLLM's
configuration says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.config.draft_loop import cause_against_our_loop
from vllm_ascend_spec.config.draft_tree import has_tree, tree_of
from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.config.schedule import NAME as SCHEDULE
from vllm_ascend_spec.config.schedule import option_of
from vllm_ascend_spec.config.schema import ADAPTIVE, AUTO, FIXED, SECTION, STOCK, SpecOptions
from vllm_ascend_spec.config.tree_shape import is_principal
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.upstream.limits import FIXED_K

LENGTH = f"additional_config.{SECTION}.draft_length"
LENGTHS = f"{LENGTH}s"
# Up to this K every length is tried; above it only some are.
FEW = 5


def with_lengths(spec: Mapping[str, Any], options: SpecOptions) -> Mapping[str, Any]:
    """Return ``spec`` with a placeholder schedule if ``adaptive`` chooses K.

    vLLM prepares for a K that changes only if it has a schedule. Our scheduler then chooses K
    instead.

    Args:
        spec: the speculative config; each value alone has been checked.
        options: ours.

    Raises:
        ConfigError: K is to be chosen but has a schedule, or cannot change in this version.
    """
    if options.draft_length != ADAPTIVE:
        return spec
    if FIXED_K is not None:
        raise ConfigError(LENGTH, ADAPTIVE, f"not possible with {FIXED_K}")
    if spec.get(SCHEDULE) is not None:
        raise ConfigError(LENGTH, ADAPTIVE, f"contradicts {option_of(spec)}; give one of the two")
    return {**spec, SCHEDULE: [[1, 1, spec["num_speculative_tokens"]]]}


def check_draft_length(request: SpecInput) -> None:
    """Refuse lengths that K cannot be chosen from, and methods with which K cannot be chosen.

    Raises:
        ConfigError: naming the option and the reason.
    """
    options, longest = request.options, request.spec["num_speculative_tokens"]
    if options.draft_length != ADAPTIVE:
        if options.draft_lengths is not None:
            problem = f"has no effect without draft_length={ADAPTIVE!r}"
            raise ConfigError(LENGTHS, options.draft_lengths, problem)
        return
    if SCHEDULE not in request.method.options:
        problem = f"not possible with method {request.method.name!r}, whose drafts never pay"
        raise ConfigError(LENGTH, ADAPTIVE, problem)
    lengths = options.draft_lengths
    if lengths is not None and not (min(lengths) >= 0 and 0 < max(lengths) <= longest):
        valid = f"valid: numbers from 0 to num_speculative_tokens={longest}, at least one above 0"
        raise ConfigError(LENGTHS, lengths, valid)


def draft_length_of(request: SpecInput) -> str:
    """Return how K is chosen: as the option says, or ``fixed`` if ``auto`` is not possible."""
    asked = request.options.draft_length
    return FIXED if asked == AUTO and reason_for_fixed(request) is not None else asked


def reason_for_fixed(request: SpecInput) -> str | None:
    """Return why options or the version keep K the same in all steps; None if they do not."""
    if FIXED_K is not None:
        return FIXED_K
    if SCHEDULE not in request.method.options:
        return f"method {request.method.name!r}, whose drafts never pay"
    if has_tree(request):
        return "a tree"
    if request.spec.get(SCHEDULE) is not None:
        return option_of(request.spec)
    if request.method.has_draft_loop:
        # Only ours keeps the draft's KV cache up to date while nothing is drafted.
        is_stock = request.options.draft_loop == STOCK
        return f"draft_loop={STOCK!r}" if is_stock else cause_against_our_loop(request)
    return None


def source_of(request: SpecInput) -> str | None:
    """Return why K is chosen this way if the user did not say how, or None."""
    if request.options.draft_length != AUTO:
        return None
    reason = reason_for_fixed(request)
    return AUTO if reason is None else because(reason)


def because(reason: str) -> str:
    """Return the source of a K that is fixed although ``auto`` was asked for."""
    return f"{AUTO!r} is not possible with {reason}"


def lengths_of(request: SpecInput) -> tuple[int, ...] | None:
    """Return the values that K is chosen from, ascending; None if it is fixed."""
    how = draft_length_of(request)
    if how == AUTO:
        return 0, request.spec["num_speculative_tokens"]
    if how == FIXED:
        return None
    if request.options.draft_lengths is not None:
        return tuple(sorted(set(request.options.draft_lengths)))
    longest = request.spec["num_speculative_tokens"]
    tree = tree_of(request)
    if tree is not None:
        # Chains up to the principal one, half of what is beside it, and all of it.
        chain = sum(map(is_principal, tree))
        short = set(range(min(chain, FEW - 2) + 1))
        return tuple(sorted(short | {chain, (chain + longest) // 2, longest}))
    if longest <= FEW:
        return tuple(range(longest + 1))
    return tuple(sorted({0, 1, 2, 3, longest // 2, longest}))
