"""How vLLM's scheduler sets how many drafts a step makes and how much of a prompt it reads.

Since 0.30 the scheduler's output carries K, and a schedule may change K from step to step. In 0.23
the output has no K: every step uses the engine's, which callers pass here.
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


class Shortens(Protocol):
    """Methods that :class:`PromptHooks` needs in the class that it is mixed into."""

    def shorten_hit(self, request: Request, blocks: Any, num_tokens: int) -> tuple[Any, int]:
        """Return the prefix cache's blocks that a request uses, and their number of tokens."""

    def shorten_read(self, request: Request, num_computed_tokens: int, num_new_tokens: int) -> int:
        """Return how many of a request's tokens a step reads."""


class PromptHooks:
    """Mixin that makes vLLM's scheduler read less of a prompt; must precede it in the bases.

    Attributes:
        holds_back: whether this version of vLLM has hooks for that.
    """

    if vllm_is(">=0.30"):
        holds_back = True

        def _get_local_prefix_cache_hit(
            self: Shortens, request: Request, *args: Any, **kwargs: Any
        ) -> Any:
            """Return the shortened hit; the values after its length differ by version."""
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
