"""Schedulers that choose K for each step from measured acceptance and step times."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from vllm_ascend_spec.config.confidence import confidences_of
from vllm_ascend_spec.config.draft_context import may_be_ragged
from vllm_ascend_spec.config.resolved import speculation_of
from vllm_ascend_spec.config.schema import AUTO
from vllm_ascend_spec.control.adaptive_k import PAYS, AdaptiveK
from vllm_ascend_spec.control.batch_class import BatchClass
from vllm_ascend_spec.control.confidence import Estimate
from vllm_ascend_spec.control.scheduler import SpecSchedulerMixin, StepK
from vllm_ascend_spec.control.step_timer import TimedStep
from vllm_ascend_spec.control.tree_tokens import DraftShapes
from vllm_ascend_spec.step_report import COSTLY, PAST, REJECTED

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
    from vllm.v1.request import Request

# Attribute of a scheduler output: whether any request of the batch samples.
SAMPLES = "ascend_spec_samples"


class AdaptiveKMixin(SpecSchedulerMixin):
    """Mixin that chooses K for each step of a vLLM scheduler, which it precedes in the bases."""

    remedy = "Drafting pauses while it does not pay, and is tried again from time to time."

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        asked = speculation_of(self.vllm_config)
        # Whether requests of a batch may verify different numbers of drafts.
        is_ragged = asked.draft_length != AUTO and may_be_ragged(self.vllm_config)
        # Keyed by whether any request of the batch samples.
        lengths, shapes = asked.draft_lengths or (), DraftShapes.of(asked)
        self.classes = {
            samples: BatchClass(lengths, may_be_ragged=is_ragged, shapes=shapes)
            for samples in (False, True)
        }
        # Of the step scheduled last; with asynchronous scheduling an earlier one is still to end.
        self._class = self.classes[False]
        # Of the step being recorded; K is that of the drafts that it verified.
        self._recorded, self._verified_k = self._class, 0
        # Those of a class that ``_limits`` was made of.
        self._class_limits = self._class.limits
        # By request id, of its newest drafts; empty for drafts without confidences.
        self._expected: dict[str, Estimate] = {}
        # K of steps that are only timed (see warmup.py), and whether that was done.
        self.warmup_k: int | None = None
        self.is_warmed_up = False

    @property
    def k_values(self) -> Sequence[int]:
        """Values of K to choose from, ascending."""
        return self.chooser.k_values

    @property
    def chooser(self) -> AdaptiveK:
        """The chooser that was used last."""
        return self._class.chooser

    def end_warmup(self) -> None:
        """End the timing of dummy requests; K is chosen from now on."""
        self.warmup_k, self._class = None, self.classes[False]

    def choose_k(self, requests: int) -> tuple[int, str]:
        """Return K for the step that is being scheduled, and the reason."""
        batch_class = self.class_now()
        if self.warmup_k is not None:
            return self.warmup_k, self.chooser.choice.reason
        # Otherwise full graphs would verify rows that are no drafts.
        if self.running and 0 in self.k_values and not any(map(self._has_room, self.running)):
            return 0, PAST
        choice = batch_class.choose(requests)
        if choice.reason == PAYS and choice.k == 0:
            return 0, REJECTED if self._alarm.is_low else COSTLY
        return choice.k, choice.reason

    def _has_room(self, request: Request) -> bool:
        return self.room_in_context(request.request_id) > 0

    def class_now(self) -> BatchClass:
        """Return the statistics for the class of batch that the running requests form."""
        samples = any(map(samples_tokens, self.running))
        if self.classes[samples] is not self._class:
            self._class = self.classes[samples]
            self._class.timer.restart()
        return self._class

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        super()._update_after_schedule(scheduler_output)
        setattr(scheduler_output, SAMPLES, self._class is self.classes[True])

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        """Store new drafts, of which each request verifies those that are worth a row."""
        confidences, limits = confidences_of(draft_token_ids), self._class.confidence
        if confidences is None or limits is None:
            self._expected.clear()
        else:
            ids, k = draft_token_ids.req_ids, self._step_k.k
            by_id = {name: own[:k] for name, own in zip(ids, confidences, strict=True)}
            # Steps that try a K are timed with all drafts.
            may_limit = self._step_k.reason == PAYS and self.warmup_k is None
            self._expected |= limits.estimate(by_id, may_limit=may_limit)
            draft_token_ids.draft_token_ids = [
                drafts[: self._expected[req_id].limit]
                for req_id, drafts in zip(ids, draft_token_ids.draft_token_ids, strict=True)
            ]
        super().update_draft_token_ids(draft_token_ids)

    def _limit_of(self, req_id: str, k: int) -> int:
        """Return how many of ``k`` drafts of a request are verified."""
        expected, most = self._expected.get(req_id), self._limits.get(req_id, k)
        return min(k, most if expected is None else min(most, expected.limit))

    def _ended(self, scheduler_output: SchedulerOutput) -> None:
        super()._ended(scheduler_output)
        running, k = scheduler_output.num_scheduled_tokens, StepK.of(scheduler_output).k
        drafts = scheduler_output.scheduled_spec_decode_tokens.values()
        rows = len(running) + sum(map(len, drafts))
        context = sum(request.num_computed_tokens for request in self.running)
        step = TimedStep(
            requests=len(running),
            k=k,
            has_prompts=scheduler_output.total_num_scheduled_tokens != rows,
            left_out=sum(k - self._limit_of(req_id, k) for req_id in running),
            context=context / max(1, len(self.running)),
        )
        self._recorded.ended(step, time.perf_counter(), running)
        if self._class.limits is not self._class_limits:
            self._class_limits = self._class.limits
            self._limits = dict(self._most_drafts)
            for req_id, most in self._class.limits.items():
                self._limits[req_id] = min(most, self._most_drafts.get(req_id, most))

    def _forget(self, req_id: str) -> None:
        super()._forget(req_id)
        self._expected.pop(req_id, None)
        for batch_class in self.classes.values():
            batch_class.forget(req_id)

    def _note_acceptance(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> None:
        self._recorded = self.classes[getattr(scheduler_output, SAMPLES)]
        self._verified_k = StepK.of(scheduler_output).verified
        super()._note_acceptance(scheduler_output, model_runner_output)
        if self._verified_k == 0 or self.warmup_k is not None:
            return
        # A step with drafts takes its time whether or not a request got drafts.
        drafted = scheduler_output.scheduled_spec_decode_tokens
        for req_id, tokens in scheduler_output.num_scheduled_tokens.items():
            request = self.requests.get(req_id)
            # After a preemption, a text is computed again in chunks.
            decodes = tokens == 1 and request is not None and request.num_output_tokens > 0
            if not decodes or req_id in drafted:
                continue
            expected = self._expected.get(req_id)
            if self._limit_of(req_id, self._verified_k) > 0:
                on_chain = None if self.is_ahead else 0
                self._recorded.note(req_id, self._verified_k, 0, on_chain=on_chain)
            elif expected is not None and expected.limit == 0:
                self._recorded.note(req_id, 0, 0, expected)

    def _note_one(self, req_id: str, drafts: int, accepted: int, on_chain: int | None) -> None:
        # Acceptance of dummy requests tells nothing.
        if self.warmup_k is None:
            super()._note_one(req_id, drafts, accepted, on_chain)
            # Drafts that a request did not get count as rejected, unless it has a limit.
            is_limited = self._limit_of(req_id, self._verified_k) < self._verified_k
            is_limited = is_limited or req_id in self._limits
            wanted = drafts if is_limited else max(drafts, self._verified_k)
            self._recorded.note(req_id, wanted, accepted, self._expected.get(req_id), on_chain)

    def _pauses(self) -> tuple[bool, int]:
        pauses = sum(batch_class.pause_log.pauses for batch_class in self.classes.values())
        return self._class.pause_log.is_paused, pauses


def samples_tokens(request: Request) -> bool:
    """Tell whether a request samples its tokens, i.e. is not greedy."""
    params = request.sampling_params
    return params is not None and params.temperature > 0


class AdaptiveScheduler(AdaptiveKMixin, Scheduler):
    """vLLM's synchronous scheduler with adaptive K."""


class AdaptiveAsyncScheduler(AdaptiveKMixin, AsyncScheduler):
    """vLLM's asynchronous scheduler with adaptive K."""

    is_ahead = True
