"""vLLM's schedulers, extended to decide how many drafts each step and each request gets.

A step's K is the number of drafts that it makes; the next step verifies them. Only the scheduler
sees both a step's end and what was accepted, and it has the numbers on the host anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from vllm.compilation.cuda_graph import CUDAGraphStat
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from vllm_ascend_spec.config.resolved import speculation_of
from vllm_ascend_spec.config.schedule import has_lockstep_replicas
from vllm_ascend_spec.control.acceptance import RecentAcceptance
from vllm_ascend_spec.control.acceptance_alarm import AcceptanceAlarm
from vllm_ascend_spec.control.context import ContextMixin
from vllm_ascend_spec.control.draft_window import WindowMixin
from vllm_ascend_spec.control.request import most_drafts
from vllm_ascend_spec.control.step_counters import StepCounters
from vllm_ascend_spec.control.tree_grammar import TreeGrammarMixin
from vllm_ascend_spec.step_report import FIXED, SCHEDULED, StepReport
from vllm_ascend_spec.upstream.scheduler import k_by_requests, set_k

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.metrics.stats import SchedulerStats
    from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
    from vllm.v1.request import Request

# Graph statistics of a step if the worker has no graphs.
NOTHING = CUDAGraphStat(0, 0, 0, "")
# Attribute of a scheduler output that holds its :class:`StepK`.
STEP_K = "ascend_spec_k"


@dataclass(frozen=True)
class StepK:
    """K of a step.

    Attributes:
        k: number of drafts that the step makes for each request.
        reason: why as many, see ``step_report.py`` and ``adaptive_k.py``.
        verified: K of the previous step, whose drafts this step verifies.
    """

    k: int
    reason: str
    verified: int

    @staticmethod
    def of(scheduler_output: SchedulerOutput) -> StepK:
        """Return the K of a scheduled step."""
        found: StepK = getattr(scheduler_output, STEP_K)
        return found


class SpecSchedulerMixin(ContextMixin, WindowMixin, TreeGrammarMixin):
    """Mixin for a scheduler of vLLM, which it has to precede in the bases.

    Requests may have fewer drafts than others, acceptance is watched, and each step reports its K.

    Attributes:
        is_ahead: whether steps are scheduled before the drafts are known.
    """

    is_ahead = False
    dynamic_sd_lookup: Any
    num_spec_tokens: int
    remedy = 'With draft_length="auto" drafting pauses while it does not pay.'

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        asked = speculation_of(self.vllm_config)
        # With a schedule, vLLM looks K up in this list and pads no request. Without the list it
        # pads requests to the drafts that the running ones have: see :meth:`schedule`.
        self.dynamic_sd_lookup = None
        self._schedule = asked.schedule and k_by_requests(
            asked.schedule, self.vllm_config.scheduler_config.max_num_seqs, self.max_k
        )
        self._step_k = StepK(self.max_k, FIXED, self.max_k)
        # Data-parallel replicas of a mixture of experts must make equally many drafts: each makes
        # the largest K and verifies the first of them.
        self._is_lockstep = has_lockstep_replicas(self.vllm_config)
        self.acceptance = RecentAcceptance(self.max_k)
        self._alarm = AcceptanceAlarm(self.acceptance, self.remedy)
        self._counters = StepCounters(asked.method, self._alarm, asked.longest_chain)
        # Most drafts by request id, for requests that ask for a limit.
        self._most_drafts: dict[str, int] = {}
        # Ids of ended requests that vLLM has not released yet.
        self._ended_ids: set[str] = set()
        # The step that ended; None once it is reported.
        self._unreported: StepK | None = None

    def choose_k(self, requests: int) -> tuple[int, str]:
        """Return K for the step that is being scheduled, and the reason.

        Args:
            requests: number of requests in the step, at least 1.
        """
        return (self.max_k, FIXED) if not self._schedule else (self._schedule[requests], SCHEDULED)

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
        self._branches.pop(req_id, None)

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        """Store new drafts, cut to the limit of each request."""
        if self._limits or self._is_lockstep:
            k = self._step_k.k
            # Not in place: a drafter in this process may keep the lists.
            draft_token_ids.draft_token_ids = [
                drafts[: min(k, self._limits.get(req_id, k))]
                for req_id, drafts in zip(
                    draft_token_ids.req_ids, draft_token_ids.draft_token_ids, strict=False
                )
            ]
        super().update_draft_token_ids(draft_token_ids)

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """Schedule a step; the signature is vLLM's.

        A request with one prompt token left to compute joins the decode batch. vLLM pads it to the
        width of the others, so that the batch replays a decode graph.
        """
        self.num_spec_tokens = self._step_k.k
        try:
            return super().schedule(*args, **kwargs)  # type: ignore[misc]
        finally:
            self.num_spec_tokens = self.max_k

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        """Set the step's K for vLLM, which with async scheduling reserves places for its drafts."""
        requests, before = len(scheduler_output.num_scheduled_tokens), self._step_k
        if requests:
            self._step_k = StepK(*self.choose_k(requests), verified=before.k)
        setattr(scheduler_output, STEP_K, self._step_k)
        set_k(scheduler_output, self._step_k.k)
        self.choose_window(scheduler_output)
        super()._update_after_schedule(scheduler_output)  # type: ignore[misc]
        self.limit_by_context()
        for req_id, most in self._limits.items():
            request = self.requests.get(req_id)
            if request is not None and len(request.spec_token_ids) > most:
                # Not in place: all requests share one list.
                request.spec_token_ids = request.spec_token_ids[:most]
        if self._is_lockstep:
            set_k(scheduler_output, self.max_k)

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
        self._unreported = None
        if scheduler_output.num_scheduled_tokens:
            self._ended(scheduler_output)
        outputs = super().update_from_output(  # type: ignore[misc]
            scheduler_output, model_runner_output
        )
        self.limit_by_context()
        return outputs

    def _ended(self, scheduler_output: SchedulerOutput) -> None:
        self._alarm.check()
        self._unreported = StepK.of(scheduler_output)

    def _pauses(self) -> tuple[bool, int]:
        """Return whether drafting is paused, and the number of pauses so far."""
        return False, 0

    def make_stats(self, *args: Any, **kwargs: Any) -> SchedulerStats | None:
        """Return vLLM's statistics of a step with our report; the signature is vLLM's."""
        stats = super().make_stats(*args, **kwargs)  # type: ignore[misc]
        # Report each step once: vLLM asks at other times, too.
        ended, self._unreported = self._unreported, None
        if stats is not None and ended is not None:
            graph = stats.cudagraph_stats or NOTHING
            report = StepReport.parse(graph.runtime_mode)
            report.k, report.k_reason = ended.k, ended.reason
            self._counters.fill(report, *self._pauses())
            stats.cudagraph_stats = replace(graph, runtime_mode=report.encode())
        return stats

    def _note_acceptance(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> None:
        sampled = model_runner_output.sampled_token_ids
        invalid = scheduler_output.num_invalid_spec_tokens or {}
        for req_id, drafts in scheduler_output.scheduled_spec_decode_tokens.items():
            if is_gone(self.requests.get(req_id)):
                continue
            if drafts[0] < 0 and not self.is_ahead:
                continue  # vLLM pads the first step of a request that joins a batch
            place = model_runner_output.req_id_to_index.get(req_id)
            tokens = sampled[place] if sampled and place is not None else []
            # Drafts that the grammar ruled out were not examined, so they do not count against the
            # drafter. Those beyond the draft model's context are no drafts.
            verified = min(len(drafts) - invalid.get(req_id, 0), self.room_in_context(req_id))
            if tokens and verified > 0:
                accepted = min(verified, len(tokens) - 1)
                self._note_one(req_id, verified, accepted, count_on_chain(drafts, tokens))
                self.note_window(scheduler_output, req_id, verified, accepted)

    def _note_one(self, req_id: str, drafts: int, accepted: int, on_chain: int | None) -> None:
        self.acceptance.note(drafts, accepted)
        self._counters.note(drafts, accepted, on_chain)


def is_gone(request: Request | None) -> bool:
    """Tell whether vLLM throws away what a step has sampled for a request.

    It does so for one that has ended since the step was scheduled, and for one that was preempted
    and resumed (vllm/v1/core/sched/scheduler.py:Scheduler.update_from_output).
    """
    if request is None or request.is_finished():
        return True
    # vLLM 0.23 has neither.
    is_stale = getattr(request, "num_stale_output_tokens", 0) > 0
    return is_stale and getattr(request, "drop_stale_output", False)


def count_on_chain(drafts: Sequence[int], tokens: Sequence[int]) -> int | None:
    """Return how many drafts at the beginning were accepted one after another.

    In a tree these are those of the principal chain: an accepted path either follows it to its end
    or leaves it.

    Args:
        drafts: a request's drafts; -1 with asynchronous scheduling, where they are not known here.
        tokens: what they were verified as: accepted drafts, and the token after them.

    Returns:
        None if the drafts are not known.
    """
    if drafts[0] < 0:
        return None
    pairs = zip(drafts, tokens[:-1], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


class SpecScheduler(SpecSchedulerMixin, Scheduler):
    """vLLM's synchronous scheduler with the limits on drafts."""


class SpecAsyncScheduler(SpecSchedulerMixin, AsyncScheduler):
    """vLLM's asynchronous scheduler with the limits on drafts."""

    is_ahead = True
