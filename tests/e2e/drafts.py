"""What an engine drafted, verified and accepted while a test ran."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from vllm.v1.spec_decode.metrics import SpecDecodingStats

from vllm_ascend_spec.metrics.acceptance import AcceptanceCounts


@dataclass(frozen=True)
class Step:
    """One step of the engine.

    Attributes:
        num_requests: how many requests ran.
        drafts: number of drafts verified, of each request that had any.
    """

    num_requests: int
    drafts: list[int]


@dataclass
class Drafts:
    """Filled by :func:`watch` step by step.

    Attributes:
        steps: the engine's steps in order, as its scheduler made them.
        stats: what its scheduler counted of them.
        preemptions: requests that were thrown out and started again.
    """

    steps: list[Step] = field(default_factory=list)
    stats: list[SpecDecodingStats] = field(default_factory=list)
    preemptions: int = 0

    @property
    def acceptance(self) -> AcceptanceCounts:
        """What was counted, added up."""
        places = zip(*(stats.num_accepted_tokens_per_pos for stats in self.stats), strict=True)
        return AcceptanceCounts(
            sum(stats.num_drafts for stats in self.stats),
            sum(stats.num_draft_tokens for stats in self.stats),
            sum(stats.num_accepted_tokens for stats in self.stats),
            tuple(map(sum, places)),
        )


@contextmanager
def watch(llm: Any) -> Iterator[Drafts]:
    """Watch an engine that runs in this process.

    Its Prometheus counters would not do: they are the process's, and count for the engine that was
    made last.
    """
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    schedule, make_stats, seen = scheduler.schedule, scheduler.make_stats, Drafts()

    def watched_schedule(*args: Any, **kwargs: Any) -> Any:
        output = schedule(*args, **kwargs)
        drafts = [len(tokens) for tokens in output.scheduled_spec_decode_tokens.values()]
        seen.steps.append(Step(len(output.num_scheduled_tokens), drafts))
        seen.preemptions += len(output.preempted_req_ids or ())
        return output

    def watched_stats(*args: Any, **kwargs: Any) -> Any:
        stats = make_stats(*args, **kwargs)
        if stats is not None and stats.spec_decoding_stats is not None:
            seen.stats.append(stats.spec_decoding_stats)
        return stats

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler, "schedule", watched_schedule)
        patch.setattr(scheduler, "make_stats", watched_stats)
        yield seen


def count(llm: Any, name: str) -> int:
    """Return one of the engine's counters."""
    return sum(metric.value for metric in llm.get_metrics() if metric.name == name)


def check_drafts(seen: Drafts, most: int, least_tokens_per_step: float = 1.3) -> None:
    """Drafts were made, up to ``most`` a request and step, and accepted at every position."""
    accepted = seen.acceptance
    assert sum(map(len, (step.drafts for step in seen.steps))) == accepted.num_drafts
    assert max(max(step.drafts, default=0) for step in seen.steps) == most, accepted
    assert all(accepted.accepted_per_position[:most]), accepted
    assert accepted.tokens_per_step is not None
    assert accepted.tokens_per_step > least_tokens_per_step, accepted


def check_every_step_drafts(seen: Drafts, most: int, answers: list[list[int]]) -> None:
    """Every token but a request's first came from verifying exactly ``most`` drafts.

    So it is with a draft model, away from the end of the context. What is verified may pass the
    end of an answer by up to ``most`` tokens; a preempted request starts without drafts again.
    """
    accepted = seen.acceptance
    assert {num for step in seen.steps for num in step.drafts} == {most}
    assert accepted.num_draft_tokens == most * accepted.num_drafts
    beyond_first = sum(map(len, answers)) - len(answers)
    by_drafts = accepted.num_drafts + accepted.num_accepted_tokens
    assert beyond_first - seen.preemptions <= by_drafts <= beyond_first + most * len(answers)


def check_schedule(seen: Drafts, schedule: list[list[int]], *, every_step: bool) -> None:
    """As many drafts as ``num_speculative_tokens_per_batch_size`` says.

    What a step verifies was drafted at the end of the step before, for its number of requests.

    Args:
        seen: what was watched.
        schedule: rows of first and last number of requests and drafts.
        every_step: no step drafts fewer.
    """
    for before, step in pairwise(seen.steps):
        most = next(k for first, last, k in schedule if first <= before.num_requests <= last)
        allowed = {most} if every_step else set(range(1, most + 1))
        assert set(step.drafts) <= allowed, (before, step)
