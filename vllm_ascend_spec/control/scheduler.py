"""vLLM's schedulers, extended to decide how many drafts each step and each request gets.

A step's K is the number of drafts that it makes; the next step verifies them. Only the scheduler
sees both a step's end and what was accepted, and it has the numbers on the host anyway.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vllm.compilation.cuda_graph import CUDAGraphStat
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from vllm_ascend_spec.config.draft_context import may_be_ragged
from vllm_ascend_spec.config.resolved import speculation_of
from vllm_ascend_spec.config.schedule import has_lockstep_replicas
from vllm_ascend_spec.config.schema import AUTO
from vllm_ascend_spec.control.acceptance import RecentAcceptance
from vllm_ascend_spec.control.acceptance_alarm import AcceptanceAlarm
from vllm_ascend_spec.control.adaptive_k import PAYS, AdaptiveK
from vllm_ascend_spec.control.batch_class import BatchClass
from vllm_ascend_spec.control.context import ContextMixin
from vllm_ascend_spec.control.kept_drafts import KeptDraftsMixin, has_seed
from vllm_ascend_spec.control.request import most_drafts
from vllm_ascend_spec.control.step_timer import TimedStep
from vllm_ascend_spec.control.tally import Tally
from vllm_ascend_spec.control.told import COSTLY, FIXED, REJECTED, SCHEDULED, SEEDED, Told
from vllm_ascend_spec.upstream.scheduler import lookup_in, num_drafts_of, set_num_drafts

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.metrics.stats import SchedulerStats
    from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
    from vllm.v1.request import Request

# Graph statistics of a step if the worker has no graphs.
NOTHING = CUDAGraphStat(0, 0, 0, "")
# Attributes that are set on a scheduler output: how many of the step's drafts are verified if more
# are made, and the K of the previous step.
VERIFIED, CARRIED = "ascend_spec_verified", "ascend_spec_carried"


class SpecSchedulerMixin(ContextMixin, KeptDraftsMixin):
    """Mixin for a scheduler of vLLM, which it has to precede in the bases.

    Requests may have fewer drafts than others, acceptance is watched, and each step reports its K.
    """

    dynamic_sd_lookup: Any
    num_spec_tokens: int
    remedy = 'With draft_length="auto" drafting pauses where it does not pay.'

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # With a schedule, vLLM looks K up in this list and pads no request. Without the list it
        # pads requests to the drafts that the running ones have: see :meth:`schedule`.
        self.dynamic_sd_lookup = None
        self._lookup: Sequence[int] | Lengths | None = lookup_of(self.vllm_config)
        self._most = self._carried = self.num_spec_tokens
        # Data-parallel replicas of a mixture of experts must make equally many drafts: each makes
        # the largest K and verifies the first of them.
        self._is_lockstep = has_lockstep_replicas(self.vllm_config)
        self.acceptance = RecentAcceptance(self._most)
        self._alarm = AcceptanceAlarm(self.acceptance, self.remedy)
        self._tally = Tally(speculation_of(self.vllm_config).method, self._alarm)
        # Most drafts by request id, for requests that ask for a limit.
        self._most_drafts: dict[str, int] = {}
        # Ids of ended requests that vLLM has not released yet.
        self._ended_ids: set[str] = set()
        self._told: Told | None = None

    def add_request(self, request: Request) -> None:
        """Add a request, and note the limit on drafts that it asks for."""
        params = request.sampling_params
        most = None if params is None else most_drafts(params.extra_args)
        if most is not None:
            self._most_drafts[request.request_id] = most
            self._limits[request.request_id] = most
        super().add_request(request)  # type: ignore[misc]

    def _forget(self, req_id: str) -> None:
        """Drop what is known of a request that has ended."""
        self._most_drafts.pop(req_id, None)
        self._limits.pop(req_id, None)

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        """Store new drafts, cut to the limit of each request."""
        if self._limits or self._is_lockstep:
            # Not in place: a drafter in this process may keep the lists.
            draft_token_ids.draft_token_ids = [
                drafts[: min(self._carried, self._limits.get(req_id, self._carried))]
                for req_id, drafts in zip(
                    draft_token_ids.req_ids, draft_token_ids.draft_token_ids, strict=True
                )
            ]
        super().update_draft_token_ids(draft_token_ids)  # type: ignore[misc]

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """Schedule a step; the signature is vLLM's.

        A request with one prompt token left to compute joins the decode batch. vLLM pads it to the
        width of the others, so that the batch replays a decode graph.
        """
        self.num_spec_tokens = speculative_config_for_vllm = self._carried
        try:
            scheduled = super().schedule(*args, **kwargs)
        finally:
            self.num_spec_tokens = self._most
        setattr(scheduled, CARRIED, speculative_config_for_vllm)
        return scheduled

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        """Set the step's K for vLLM, which with async scheduling reserves places for its drafts."""
        requests, drafts = len(scheduler_output.num_scheduled_tokens), self._most
        if self._lookup is not None and requests:
            drafts = self._carried = self._lookup[requests]
        set_num_drafts(scheduler_output, drafts)
        super()._update_after_schedule(scheduler_output)  # type: ignore[misc]
        self.limit_by_context()
        for req_id, most in self._limits.items():
            request = self.requests.get(req_id)
            if request is not None and len(request.spec_token_ids) > most:
                # Not in place: all requests share one list.
                request.spec_token_ids = request.spec_token_ids[:most]
        if self._is_lockstep:
            setattr(scheduler_output, VERIFIED, drafts)
            set_num_drafts(scheduler_output, self._most)

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> Any:
        """Record the end of a step, and do what vLLM does."""
        self._note_acceptance(scheduler_output, model_runner_output)
        # A new request may reuse an id by now, and a connector may keep blocks of an ended one.
        self._ended_ids |= scheduler_output.finished_req_ids
        gone = self._ended_ids - self.requests.keys()
        self._ended_ids -= gone
        for req_id in gone:
            self._forget(req_id)
        self._told = None
        if scheduler_output.num_scheduled_tokens:
            self._ended(scheduler_output)
        outputs = super().update_from_output(  # type: ignore[misc]
            scheduler_output, model_runner_output
        )
        self.limit_by_context()
        return outputs

    def _ended(self, scheduler_output: SchedulerOutput) -> None:
        self._alarm.look()
        self._told = Told(drafts_of(scheduler_output, self._most), self._reason())

    def _reason(self) -> str:
        return FIXED if self._lookup is None else SCHEDULED

    def _pauses(self) -> tuple[bool, int]:
        """Return whether drafting is paused, and the number of pauses so far."""
        return False, 0

    def make_stats(self, *args: Any, **kwargs: Any) -> SchedulerStats | None:
        """Return vLLM's statistics of a step with our report; the signature is vLLM's."""
        stats = super().make_stats(*args, **kwargs)  # type: ignore[misc]
        # Report each step once: vLLM asks at other times, too.
        told, self._told = self._told, None
        if stats is not None and told is not None:
            graph = stats.cudagraph_stats or NOTHING
            told = self._tally.complete(told, *self._pauses())
            text = told.behind(graph.runtime_mode)
            stats.cudagraph_stats = replace(graph, runtime_mode=text)
        return stats

    def _note_acceptance(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> None:
        sampled = model_runner_output.sampled_token_ids
        invalid = scheduler_output.num_invalid_spec_tokens or {}
        for req_id, drafts in scheduler_output.scheduled_spec_decode_tokens.items():
            place = model_runner_output.req_id_to_index.get(req_id)
            tokens = sampled[place] if sampled and place is not None else []
            # Drafts that the grammar ruled out were not examined, so they do not count against the
            # drafter. Those beyond the draft model's context are no drafts.
            verified = min(len(drafts) - invalid.get(req_id, 0), self.room_in_context(req_id))
            if tokens and verified > 0:
                self._note_one(req_id, verified, min(verified, len(tokens) - 1))

    def _note_one(self, req_id: str, drafts: int, accepted: int) -> None:
        self.acceptance.note(drafts, accepted)
        self._tally.note(drafts, accepted)


def lookup_of(vllm_config: VllmConfig) -> Sequence[int] | None:
    """Return K by number of requests from the engine's schedule; None without a schedule."""
    asked = speculation_of(vllm_config)
    if asked.schedule is None:
        return None
    widest = vllm_config.scheduler_config.max_num_seqs
    return lookup_in(asked.schedule, widest, asked.num_drafts)


class Lengths:
    """Replaces vLLM's list of K by batch size.

    Args:
        length_of: returns K by the number of requests of the step that is being scheduled.
    """

    def __init__(self, length_of: Callable[[int], int]) -> None:
        self._length_of = length_of

    def __getitem__(self, requests: int) -> int:
        """Return K for the step that is being scheduled."""
        return self._length_of(requests)


class AdaptiveKMixin(SpecSchedulerMixin):
    """Mixin that chooses K for each step of a vLLM scheduler, which it precedes in the bases."""

    remedy = "Drafting pauses where it does not pay, and is tried again from time to time."

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        asked = speculation_of(self.vllm_config)
        lengths, is_ragged = self._lengths()
        # Whether K is fixed while a request with a seed runs, as its tokens would change with K.
        self._keeps_seeds = asked.draft_length == AUTO
        self._is_kept = False
        # K of the drafts that were verified in the step being recorded.
        self._wanted = 0
        # Keyed by whether any request of the batch samples.
        self.kinds = {
            samples: BatchClass(lengths, may_be_ragged=is_ragged) for samples in (False, True)
        }
        self._kind = self.kinds[False]
        # K of steps that are only timed (see warmup.py), and whether that was done.
        self.warmup_k: int | None = None
        self.is_warmed_up = False
        # Replaces the schedule that vLLM was given.
        self._lookup = Lengths(self._length)

    def _lengths(self) -> tuple[Sequence[int], bool]:
        """Return the K to choose from, and whether they may differ within a batch."""
        asked = speculation_of(self.vllm_config)
        is_ragged = asked.draft_length != AUTO and may_be_ragged(self.vllm_config)
        return asked.draft_lengths or (), is_ragged

    @property
    def lengths(self) -> Sequence[int]:
        """Values of K to choose from, ascending."""
        return self.chooser.lengths

    @property
    def chooser(self) -> AdaptiveK:
        """The chooser that was used last."""
        return self._kind.chooser

    def end_warmup(self) -> None:
        """End the timing of dummy requests; K is chosen from now on."""
        self.warmup_k, self._kind = None, self.kinds[False]

    def _length(self, requests: int) -> int:
        kind = self.kind_now()
        if self.warmup_k is not None:
            return self.warmup_k
        self._is_kept = self._keeps_seeds and any(map(has_seed, self.running))
        return self._most if self._is_kept else kind.length(requests)

    def kind_now(self) -> BatchClass:
        """Return the statistics for the kind of batch that the running requests form."""
        samples = any(map(samples_tokens, self.running))
        if self.kinds[samples] is not self._kind:
            self._kind = self.kinds[samples]
            self._kind.clock.restart()
        return self._kind

    def _ended(self, scheduler_output: SchedulerOutput) -> None:
        super()._ended(scheduler_output)
        running = scheduler_output.num_scheduled_tokens
        step = step_of(scheduler_output, self._most)
        left_out = sum(
            max(0, step.drafts - most) for name, most in self._limits.items() if name in running
        )
        before = self._kind.limits
        context = sum(request.num_computed_tokens for request in self.running)
        step = replace(step, left_out=left_out, context=context / max(1, len(self.running)))
        self._kind.ended(step, time.perf_counter(), running)
        if self._kind.limits is not before:
            self._limits = dict(self._most_drafts)
            for req_id, most in self._kind.limits.items():
                self._limits[req_id] = min(most, self._most_drafts.get(req_id, most))

    def _forget(self, req_id: str) -> None:
        super()._forget(req_id)
        for kind in self.kinds.values():
            kind.forget(req_id)

    def _note_acceptance(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> None:
        self._wanted = getattr(scheduler_output, CARRIED, 0)
        super()._note_acceptance(scheduler_output, model_runner_output)
        if self._wanted == 0 or self.warmup_k is not None:
            return
        # A step with drafts takes its time whether or not a request got drafts.
        drafted = scheduler_output.scheduled_spec_decode_tokens
        for req_id in scheduler_output.num_scheduled_tokens:
            request = self.requests.get(req_id)
            decodes = request is not None and request.num_output_tokens > 0
            if decodes and req_id not in drafted and self._limits.get(req_id) != 0:
                self._kind.note(req_id, self._wanted, 0)

    def _note_one(self, req_id: str, drafts: int, accepted: int) -> None:
        # Acceptance of dummy requests tells nothing.
        if self.warmup_k is None:
            super()._note_one(req_id, drafts, accepted)
            # Drafts that a request did not get count as rejected, unless it has a limit.
            wanted = drafts if req_id in self._limits else max(drafts, self._wanted)
            self._kind.note(req_id, wanted, accepted)

    def _pauses(self) -> tuple[bool, int]:
        pauses = sum(kind.reporter.pauses for kind in self.kinds.values())
        return self._kind.reporter.is_paused, pauses

    def _reason(self) -> str:
        if self._is_kept:
            return SEEDED
        choice = self.chooser.choice
        if choice.reason == PAYS and choice.drafts == 0:
            return REJECTED if self._alarm.is_low else COSTLY
        return choice.reason


def samples_tokens(request: Request) -> bool:
    """Tell whether a request samples its tokens, i.e. is not greedy."""
    params = request.sampling_params
    return params is not None and params.temperature > 0


def drafts_of(scheduler_output: SchedulerOutput, longest: int) -> int:
    """Return how many of a step's drafts the next verifies; ``longest`` is K of the engine."""
    verified = getattr(scheduler_output, VERIFIED, None)
    return num_drafts_of(scheduler_output, longest) if verified is None else verified


def step_of(scheduler_output: SchedulerOutput, longest: int) -> TimedStep:
    """Describe a scheduled step as a :class:`TimedStep`; ``longest`` is K of the engine."""
    requests = len(scheduler_output.num_scheduled_tokens)
    drafts = scheduler_output.scheduled_spec_decode_tokens.values()
    rows = requests + sum(map(len, drafts))
    return TimedStep(
        requests,
        drafts_of(scheduler_output, longest),
        scheduler_output.total_num_scheduled_tokens != rows,
    )


class SpecScheduler(SpecSchedulerMixin, Scheduler):
    """vLLM's synchronous scheduler with the limits on drafts."""


class SpecAsyncScheduler(SpecSchedulerMixin, AsyncScheduler):
    """vLLM's asynchronous scheduler with the limits on drafts."""


class AdaptiveScheduler(AdaptiveKMixin, Scheduler):
    """vLLM's synchronous scheduler with adaptive K."""


class AdaptiveAsyncScheduler(AdaptiveKMixin, AsyncScheduler):
    """vLLM's asynchronous scheduler with adaptive K."""
