"""Options that were given but have no effect, with the reason and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vllm_ascend_spec.config.capture import ineffective
from vllm_ascend_spec.config.draft_sampling import draft_sample_method, reason_for_greedy
from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.config.rules import BLOCK, GREEDY, STANDARD, resolve_rule

LEAVE_OUT = "leave it out"
GREEDY_REMEDY = 'leave out "draft_sample_method": "greedy", or this option'


@dataclass(frozen=True)
class NoEffect:
    """An option that changes nothing.

    Attributes:
        option: as the user wrote it.
        why: the reason.
        remedy: what to do.
    """

    option: str
    why: str
    remedy: str = LEAVE_OUT


def without_effect(request: SpecInput) -> Iterator[NoEffect]:
    """Yield the options without effect in a request that has passed every check."""
    method = request.method
    for key in request.spec:
        if key not in method.options and key not in request.from_head:
            # Nothing else passes the checks.
            why = f"method {method.name!r} does not have it, and this is its default elsewhere"
            yield NoEffect(f"speculative_config.{key}", why)
    for option, why in ineffective(request):
        yield NoEffect(option, f"no graphs are captured {why}")
    yield from _of_rule(request)


def _of_rule(request: SpecInput) -> Iterator[NoEffect]:
    asked = request.spec.get("rejection_sample_method") or STANDARD
    if resolve_rule(asked, request.section) != BLOCK:
        return
    is_ours = request.section.get("verify_rule") is not None
    option = "verify_rule" if is_ours else "rejection_sample_method"
    why = "drafts that are not sampled are accepted by the token rule as often"
    if not request.method.can_sample_drafts:
        yield NoEffect(option, f"{why}, and method {request.method.name!r} samples none")
    elif draft_sample_method(request) == GREEDY:
        is_possible = reason_for_greedy(request) is None
        yield NoEffect(option, why, GREEDY_REMEDY if is_possible else LEAVE_OUT)
