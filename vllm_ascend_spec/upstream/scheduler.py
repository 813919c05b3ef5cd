"""How vLLM's scheduler says how many drafts a step makes, and how much of a prompt it reads.

Since 0.30 the scheduler's output carries K and a schedule may change it from step to step. In 0.23
K is the engine's in each step: here it is kept beside the output, and never changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from vllm_ascend_spec.upstream.limits import FIXED_K
from vllm_ascend_spec.upstream.ranges import vllm_is

if vllm_is(">=0.30"):
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request


def set_num_drafts(scheduled: SchedulerOutput, num_drafts: int) -> None:
    """Say how many drafts a step makes; where K never changes, nobody has to be told."""
    if vllm_is(">=0.30"):
        scheduled.num_spec_tokens_to_schedule = num_drafts


def num_drafts_of(scheduled: SchedulerOutput, longest: int) -> int:
    """Return how many drafts a step makes.

    Args:
        scheduled: the step.
        longest: K of the engine.
    """
    if vllm_is(">=0.30"):
        return scheduled.num_spec_tokens_to_schedule
    return longest


def lookup_in(schedule: Sequence[Sequence[int]], widest: int, longest: int) -> list[int]:
    """Return K by the number of requests, from a schedule of rows (first, last, K).

    Args:
        schedule: its rows.
        widest: most requests of a batch.
        longest: K of the engine.
    """
    if vllm_is(">=0.30"):
        return build_dynamic_sd_schedule_lookup([list(row) for row in schedule], widest, longest)
    raise ValueError(f"no schedule of K with {FIXED_K}")


class Shortens(Protocol):
    """What :class:`PromptHooks` asks a class that it is mixed into."""

    def shorten_hit(self, request: Request, blocks: Any, num_tokens: int) -> tuple[Any, int]:
        """Return the blocks and the tokens of the prefix cache that a request takes."""

    def shorten_read(self, request: Request, num_computed_tokens: int, num_new_tokens: int) -> int:
        """Return how many of a request's tokens are read in a step."""


class PromptHooks:
    """Mix into a scheduler of vLLM's, before it in the bases: where it reads less of a prompt.

    Attributes:
        holds_back: whether vLLM has places where that can be said.
    """

    if vllm_is(">=0.30"):
        holds_back = True

        def _get_local_prefix_cache_hit(
            self: Shortens, request: Request, *args: Any, **kwargs: Any
        ) -> Any:
            """Return what the prefix cache has; what is behind its length differs by version."""
            found = super()._get_local_prefix_cache_hit(  # type: ignore[misc]
                request, *args, **kwargs
            )
            blocks, num_tokens, *further = found
            return (*self.shorten_hit(request, blocks, num_tokens), *further)

        def _reserve_prefill_lookahead(
            self: Shortens, request: Request, num_computed_tokens: int, num_new_tokens: int
        ) -> int:
            """Return how many tokens of a prompt are read; the signature is vLLM's."""
            num_new_tokens = super()._reserve_prefill_lookahead(  # type: ignore[misc]
                request, num_computed_tokens, num_new_tokens
            )
            return self.shorten_read(request, num_computed_tokens, num_new_tokens)

    else:
        holds_back = False
        num_prefill_lookahead = 0
