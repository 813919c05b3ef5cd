"""Distributions of drafts are kept while their request is preempted, for these drafts alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from vllm_ascend_spec.worker.kept_probs import KeptProbsMixin

LENGTH = 10


class Stock:
    """The part of vLLM's runner that the mixin builds on."""

    def _update_states(self, scheduler_output: Any) -> None:
        pass


class Runner(KeptProbsMixin, Stock):
    """A runner that has just drafted for three requests, of which two have a seed."""

    def __init__(self, *, is_ahead: bool = False) -> None:
        super().__init__()
        self.device, self.use_async_scheduling = torch.device("cpu"), is_ahead
        seeds = {"a": torch.Generator(), "b": torch.Generator(), "none": None}
        self.requests = {
            name: SimpleNamespace(generator=generator, num_tokens=LENGTH)
            for name, generator in seeds.items()
        }
        self._draft_prob_req_ids = list(seeds)
        self._draft_probs = torch.rand(3, 2, 5)


def step(
    scheduled: dict[str, tuple[int, int]], drafts: tuple[str, ...] = (), **given: Any
) -> SimpleNamespace:
    """Return a step with, by request, how many tokens were known before and how many it has."""
    again = SimpleNamespace(
        req_ids=list(scheduled), num_computed_tokens=[known for known, _ in scheduled.values()]
    )
    return SimpleNamespace(
        scheduled_cached_reqs=again,
        num_scheduled_tokens={name: count for name, (_, count) in scheduled.items()},
        scheduled_spec_decode_tokens={name: [1, 2] for name in drafts},
        **{"preempted_req_ids": None, "finished_req_ids": set(), **given},
    )


def test_they_are_there_when_the_drafts_are_verified() -> None:
    runner = Runner()
    assert runner._draft_probs is not None
    first = runner._draft_probs.clone()
    runner._update_states(step({"b": (9, 3)}, ("b",), preempted_req_ids={"a", "none"}))
    # Meanwhile others are drafted for, and this one is while its prompt is computed anew.
    runner._draft_probs, runner._draft_prob_req_ids = torch.rand(2, 3, 5), ["b", "a"]
    runner._update_states(step({"a": (0, LENGTH - 1), "b": (12, 3)}, ("b",)))
    assert runner.with_resumed()[0] is runner._draft_probs
    runner._update_states(step({"a": (LENGTH - 1, 3)}, ("a",)))
    probs, ids = runner.with_resumed()
    assert probs is not None
    assert ids is not None
    last = {name: place for place, name in enumerate(ids)}
    assert torch.equal(probs[last["a"], :2], first[0])
    assert torch.equal(probs[last["b"]], runner._draft_probs[0])
    runner._update_states(step({"a": (LENGTH + 1, 3)}, ("a",)))
    assert runner.with_resumed()[0] is runner._draft_probs
    assert not runner._kept_probs


def test_they_are_dropped_where_the_request_samples_without_drafts() -> None:
    runner = Runner()
    runner._update_states(step({}, preempted_req_ids={"a"}))
    runner._update_states(step({"a": (0, LENGTH)}))
    assert not runner._kept_probs
    runner._update_states(step({"a": (LENGTH, 3)}, ("a",)))
    assert runner.with_resumed()[0] is runner._draft_probs


def test_they_are_dropped_where_the_request_ends() -> None:
    runner = Runner()
    runner._update_states(step({}, preempted_req_ids={"a"}))
    runner._update_states(step({}, finished_req_ids={"a"}))
    assert not runner._kept_probs


def test_without_a_seed_or_with_steps_scheduled_ahead_nothing_is_kept() -> None:
    for runner, name in ((Runner(), "none"), (Runner(is_ahead=True), "a")):
        runner._update_states(step({}, preempted_req_ids={name}))
        assert not runner._kept_probs
