"""Steps of dummy requests are timed before the first request, and leave nothing behind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.control.test_scheduler import Scheduler, engine, outcome, request, step
from vllm_ascend_spec.config.resolved import speculation_of
from vllm_ascend_spec.control import adaptive_scheduler, warmup
from vllm_ascend_spec.control.warmup import batch_sizes, cells, profile_steps

WRITES = 3


class Served(Scheduler):
    """Has requests that decode for ever, all drafts of which are accepted."""

    def __init__(self) -> None:
        self.vllm_config = engine(length="adaptive", k_values=(0, 1, 3))
        self.vllm_config.scheduler_config.max_num_seqs = 8
        self.vllm_config.model_config.max_model_len = 64
        self.vllm_config.model_config.is_encoder_decoder = False
        self.vllm_config.kv_transfer_config = self.vllm_config.ec_transfer_config = None
        super().__init__()

    @property
    def running(self) -> list[Any]:
        return list(self.requests.values())

    def get_num_unfinished_requests(self) -> int:
        return len(self.requests)

    def has_requests(self) -> bool:
        return bool(self.requests)


class Learned:
    """A drafter that learns from what is accepted."""

    forgets = 0

    def forget(self) -> None:
        self.forgets += 1


class Core:
    """As much of vLLM's engine as the warm-up touches."""

    batch_queue = None

    def __init__(self) -> None:
        self.scheduler = Served()
        self.vllm_config = self.scheduler.vllm_config
        self.seconds = 0.0
        self.steps: list[tuple[int, int, bool]] = []
        self.resets = self.posts = 0
        self.drafter = Learned()
        runner = SimpleNamespace(drafter=self.drafter)
        workers = (SimpleNamespace(model_runner=runner), SimpleNamespace(model_runner=None))
        self.model_executor = SimpleNamespace(
            collective_rpc=lambda call: [call(worker) for worker in workers]
        )

    def preprocess_add_request(self, asked: Any) -> tuple[Any, int]:
        made = request(asked.request_id)
        made.sampling_params = asked.sampling_params
        made.num_output_tokens = made.num_computed_tokens = 0
        assert len(asked.prompt_token_ids) < 64
        return made, 0

    def add_request(self, made: Any, wave: int) -> None:
        self.scheduler.add_request(made)

    def abort_requests(self, names: list[str]) -> None:
        for name in names:
            del self.scheduler.requests[name]

    def reset_prefix_cache(self) -> None:
        self.resets += 1

    def step_fn(self) -> tuple[dict[int, Any], bool]:
        running = self.scheduler.running
        has_prompts = not running[0].num_output_tokens
        scheduled = step({made.request_id: [1, 2, 3] for made in running}, int(has_prompts))
        self.scheduler._update_after_schedule(scheduled)
        length = scheduled.num_spec_tokens_to_schedule
        self.seconds += 0.010 + 0.001 * len(running) * (length + 1)
        for made in running:
            made.num_output_tokens += length + 1
        self.scheduler.update_from_output(
            scheduled, outcome({made.request_id: [1, 2, 3, 4] for made in running})
        )
        samples = running[0].sampling_params.temperature > 0
        self.steps.append((len(running), length, samples))
        return {}, True

    def post_step(self, has_run: bool) -> None:
        self.posts += has_run


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Core:
    """An engine whose clock stands still but in its steps."""
    found = Core()
    for module in (warmup, adaptive_scheduler):
        clock = SimpleNamespace(perf_counter=lambda: found.seconds, time=lambda: 0.0)
        monkeypatch.setattr(module, "time", clock)
    return found


def test_every_length_is_timed_in_batches_of_several_sizes(core: Core) -> None:
    profile_steps(core)
    for kind in core.scheduler.classes.values():
        costs = kind.chooser.costs
        timed = {cell: found.seconds for cell, found in costs.cells().items()}
        assert timed == pytest.approx(
            {(n, k): 0.010 + 0.001 * n * (k + 1) for n in (1, 4, 8) for k in (0, 1, 3)}
        )
        assert all(costs.is_known(n, k) for n, k in timed)
        # Between them, too.
        assert costs.seconds(6, 1) == pytest.approx(0.022, rel=0.05)


def test_nothing_is_left_behind(core: Core) -> None:
    profile_steps(core)
    served = core.scheduler
    assert not served.requests
    assert core.resets == core.drafter.forgets == 1
    assert core.posts == len(core.steps)
    assert served.warmup_k is None
    assert served.chooser is served.classes[False].chooser
    # Dummy text says nothing of how often drafts are accepted.
    assert served.acceptance.num_observed == 0
    assert all(kind.chooser.acceptance.num_observed == 0 for kind in served.classes.values())


def test_it_is_done_once(core: Core) -> None:
    profile_steps(core)
    steps = len(core.steps)
    profile_steps(core)
    assert len(core.steps) == steps


def test_it_ends_after_a_while_with_the_smallest_and_the_largest_batch(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warmup, "LONGEST", 0.3)
    profile_steps(core)
    assert {n for n, _, _ in core.steps} == {1, 8}
    assert core.seconds < 0.5


def test_the_first_request_is_drafted_for_and_then_what_pays_is_known(core: Core) -> None:
    """Without the warm-up the shortest length has to be looked at first."""
    profile_steps(core)
    chooser = core.scheduler.classes[False].chooser
    reasons = []
    for _ in range(12):
        reasons.append(chooser.choose(8))
        chooser.acceptance.note(3, 3)
    assert {choice.k for choice in reasons} == {3}
    assert reasons[-1].reason == "pays"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda c: object.__setattr__(speculation_of(c), "has_draft_model", False), "from text"),
        (lambda c: setattr(c.parallel_config, "data_parallel_size", 2), "step together"),
        (lambda c: setattr(c, "kv_transfer_config", object()), "connector"),
        (lambda c: setattr(c, "ec_transfer_config", object()), "connector"),
        (lambda c: setattr(c.model_config, "is_encoder_decoder", True), "encoder"),
    ],
)
def test_no_dummy_requests_where_they_would_do_harm_or_tell_nothing(
    core: Core, change: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    change(core.vllm_config)
    with caplog.at_level("INFO", "vllm.plugins.ascend_spec"):
        profile_steps(core)
    assert not core.steps
    assert reason in warmup.reason_against(core.vllm_config)


def test_other_schedulers_are_left_alone() -> None:
    profile_steps(SimpleNamespace(scheduler=object()))


@pytest.mark.parametrize(
    ("largest", "sizes"), [(1, [1]), (2, [1, 2]), (4, [1, 4]), (64, [1, 64, 16, 4])]
)
def test_sizes_of_batches(largest: int, sizes: list[int]) -> None:
    assert batch_sizes(largest) == sizes


def test_the_longest_comes_first() -> None:
    assert list(cells([1], [0, 3])) == [(1, False, 3), (1, False, 0), (1, True, 3), (1, True, 0)]
