"""Let the scheduler choose the window of the draft's attention for each step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.config.draft_context import draft_context
from vllm_ascend_spec.config.draft_window import set_window, sizes_below
from vllm_ascend_spec.config.resolved import speculation_of
from vllm_ascend_spec.config.schema import AUTO
from vllm_ascend_spec.control.window_choice import WindowChoice
from vllm_ascend_spec.log import get_logger

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request

logger = get_logger(__name__)
# Attribute of a scheduler output: the window of the drafts that the step verifies.
VERIFIED = "ascend_spec_verified_window"


class WindowMixin:
    """Mixin for a scheduler of vLLM, which it has to precede in the bases.

    Does nothing unless ``draft_window`` is ``auto``. The drafts that a step verifies were made in
    the step that was scheduled before it.
    """

    vllm_config: VllmConfig
    num_spec_tokens: int
    requests: dict[str, Request]
    running: list[Request]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.window_choice: WindowChoice | None = None
        # Window of the step that was scheduled last.
        self._window: int | None = None
        if speculation_of(self.vllm_config).draft_window == AUTO:
            longest = self.vllm_config.model_config.max_model_len
            sizes = sizes_below(draft_context(self.vllm_config) or longest)
            self.window_choice = WindowChoice(sizes, self.num_spec_tokens)

    def choose_window(self, scheduler_output: SchedulerOutput) -> None:
        """Set the window for a scheduled step, and remember that of the drafts it verifies."""
        choice = self.window_choice
        if choice is None or not scheduler_output.num_scheduled_tokens:
            return
        setattr(scheduler_output, VERIFIED, self._window)
        if any(self._is_long(choice, request) for request in self.running):
            self._window = choice.next_window()
        set_window(scheduler_output, self._window)

    def note_window(
        self, scheduler_output: SchedulerOutput, req_id: str, drafts: int, accepted: int
    ) -> None:
        """Record a request's verified and accepted drafts."""
        choice, request = self.window_choice, self.requests.get(req_id)
        if choice is None or request is None or not self._is_long(choice, request):
            return
        if choice.note(getattr(scheduler_output, VERIFIED, None), drafts, accepted):
            size = choice.window
            logger.info(
                "draft_window='auto': the draft attends to %s now, %.2f tokens per step; %s.",
                "the whole text" if size is None else f"the last {size} tokens",
                choice.tokens(size),
                ", ".join(
                    f"{'whole text' if other is None else other}: {choice.tokens(other):.2f}"
                    for other in (None, *choice.sizes)
                    if other != size
                ),
            )

    def _is_long(self, choice: WindowChoice, request: Request) -> bool:
        return request.num_tokens > choice.sizes[0]
