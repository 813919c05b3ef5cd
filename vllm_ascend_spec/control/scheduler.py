"""vLLM's schedulers with K chosen by goodput, and what they tell the chooser.

K of a step is how many drafts it makes; the next step verifies them. The scheduler is the one place
that sees both a step's end and what was accepted, and it has the numbers on the host anyway.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from vllm_ascend_spec.config.resolved import speculation_of
from vllm_ascend_spec.control.goodput import LengthChooser
from vllm_ascend_spec.control.report import Reporter
from vllm_ascend_spec.control.steps import Step, StepClock

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.outputs import ModelRunnerOutput


class Lengths:
    """Stands in for the list of K by batch size that vLLM's scheduler looks K up in."""

    def __init__(self, chooser: LengthChooser, reporter: Reporter) -> None:
        self._chooser, self._reporter = chooser, reporter

    def __getitem__(self, requests: int) -> int:
        """Return K for the step that is being scheduled."""
        choice = self._chooser.choose(requests)
        self._reporter.note(choice, requests)
        return choice.drafts


class AdaptiveLengthMixin:
    """Mix into a scheduler of vLLM's, before it in the bases."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        lengths = speculation_of(self.vllm_config).draft_lengths  # type: ignore[attr-defined]
        self.chooser = LengthChooser(lengths or ())
        # vLLM asks this for K wherever a schedule is set, and ours has set one.
        self.dynamic_sd_lookup = Lengths(self.chooser, Reporter(self.chooser))
        self._clock = StepClock(self.chooser.costs)

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> Any:
        """Take up a step's end, and do what vLLM does."""
        self._note_acceptance(scheduler_output, model_runner_output)
        if scheduler_output.num_scheduled_tokens:
            self._clock.ended(step_of(scheduler_output), time.perf_counter())
        return super().update_from_output(  # type: ignore[misc]
            scheduler_output, model_runner_output
        )

    def _note_acceptance(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> None:
        sampled = model_runner_output.sampled_token_ids
        invalid = scheduler_output.num_invalid_spec_tokens or {}
        for req_id, drafts in scheduler_output.scheduled_spec_decode_tokens.items():
            place = model_runner_output.req_id_to_index.get(req_id)
            tokens = sampled[place] if sampled and place is not None else []
            # Drafts that the grammar ruled out were not the drafter's fault, and not looked at.
            verified = len(drafts) - invalid.get(req_id, 0)
            if tokens and verified > 0:
                self.chooser.acceptance.note(verified, len(tokens) - 1)


def step_of(scheduler_output: SchedulerOutput) -> Step:
    """Return what a step was."""
    requests = len(scheduler_output.num_scheduled_tokens)
    drafts = scheduler_output.scheduled_spec_decode_tokens.values()
    rows = requests + sum(map(len, drafts))
    return Step(
        requests,
        scheduler_output.num_spec_tokens_to_schedule,
        scheduler_output.total_num_scheduled_tokens != rows,
    )


class AdaptiveScheduler(AdaptiveLengthMixin, Scheduler):
    """vLLM's scheduler, for steps one after the other."""


class AdaptiveAsyncScheduler(AdaptiveLengthMixin, AsyncScheduler):
    """vLLM's scheduler of steps before the ones before them have ended."""
