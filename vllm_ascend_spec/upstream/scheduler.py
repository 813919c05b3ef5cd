"""How vLLM's scheduler sets how many drafts a step makes.

Since 0.30 the scheduler's output carries K, and a schedule may change K from step to step. In 0.23
the output has no K: every step uses the engine's, which callers pass here. Nor is there one way to
ask what a grammar allows, which only trees need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vllm_ascend_spec.upstream.limits import FIXED_K, NO_TREES
from vllm_ascend_spec.upstream.ranges import vllm_is

if vllm_is(">=0.30"):
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request
    from vllm.v1.structured_output import StructuredOutputManager


def set_k(scheduled: SchedulerOutput, k: int) -> None:
    """Set how many drafts a step makes; does nothing where K never changes."""
    if vllm_is(">=0.30"):
        scheduled.num_spec_tokens_to_schedule = k


def k_of(scheduled: SchedulerOutput, max_k: int) -> int:
    """Return how many drafts a step makes.

    Args:
        scheduled: the scheduler's output for the step.
        max_k: the engine's K.
    """
    if vllm_is(">=0.30"):
        return scheduled.num_spec_tokens_to_schedule
    return max_k


def k_by_requests(schedule: Sequence[Sequence[int]], widest: int, max_k: int) -> list[int]:
    """Return a list of K by number of requests, from a schedule of rows (first, last, K).

    Args:
        schedule: the rows.
        widest: maximum number of requests in a batch.
        max_k: the engine's K.
    """
    if vllm_is(">=0.30"):
        return build_dynamic_sd_schedule_lookup([list(row) for row in schedule], widest, max_k)
    raise ValueError(f"no schedule of K with {FIXED_K}")


def allowed_drafts(
    manager: StructuredOutputManager, request: Request, drafts: list[int]
) -> list[int]:
    """Return the drafts up to the first that a request's grammar rules out.

    Args:
        manager: vLLM's.
        request: the request.
        drafts: one after the other.
    """
    if vllm_is(">=0.30"):
        return manager.validate_tokens(request, drafts)
    raise ValueError(f"no trees with {NO_TREES}")
