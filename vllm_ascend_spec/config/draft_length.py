"""Whether K is fixed or chosen from step to step, and from what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.config.engine import Request
from vllm_ascend_spec.config.schedule import NAME as SCHEDULE
from vllm_ascend_spec.config.schedule import option_of
from vllm_ascend_spec.config.schema import ADAPTIVE, SECTION, SpecOptions
from vllm_ascend_spec.errors import ConfigError

LENGTH = f"additional_config.{SECTION}.draft_length"
LENGTHS = f"{LENGTH}s"
# Up to so many drafts each length is tried; above it some are.
FEW = 5


def with_lengths(spec: Mapping[str, Any], options: SpecOptions) -> Mapping[str, Any]:
    """Return ``spec`` with the schedule that stands for a K that changes.

    vLLM prepares for K that changes where it has a schedule of K; which K it is, our scheduler says
    instead.

    Args:
        spec: the speculative config; each value alone has been checked.
        options: ours.

    Raises:
        ConfigError: K is to be chosen and has a schedule.
    """
    if options.draft_length != ADAPTIVE:
        return spec
    if spec.get(SCHEDULE) is not None:
        raise ConfigError(LENGTH, ADAPTIVE, f"contradicts {option_of(spec)}; give one of the two")
    return {**spec, SCHEDULE: [[1, 1, spec["num_speculative_tokens"]]]}


def check_draft_length(request: Request) -> None:
    """Refuse lengths that cannot be chosen from, and engines in which none can be chosen.

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
        problem = (
            f"not possible with method {request.method.name!r}, which drafts nothing that pays"
        )
        raise ConfigError(LENGTH, ADAPTIVE, problem)
    lengths = options.draft_lengths
    if lengths is not None and not (min(lengths) >= 0 and 0 < max(lengths) <= longest):
        valid = f"valid: numbers from 0 to num_speculative_tokens={longest}, one above 0 at least"
        raise ConfigError(LENGTHS, lengths, valid)


def lengths_of(request: Request) -> tuple[int, ...] | None:
    """Return what K is chosen from, ascending; None where it is fixed."""
    if request.options.draft_length != ADAPTIVE:
        return None
    if request.options.draft_lengths is not None:
        return tuple(sorted(set(request.options.draft_lengths)))
    longest = request.spec["num_speculative_tokens"]
    if longest <= FEW:
        return tuple(range(longest + 1))
    return tuple(sorted({0, 1, 2, 3, longest // 2, longest}))
