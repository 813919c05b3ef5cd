"""What the scheduler tells the chooser, over fakes for vLLM's outputs."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.compilation.cuda_graph import CUDAGraphStat

from tests.control.fake_scheduler import (
    Adaptive,
    Auto,
    Fixed,
    Scheduler,
    decoding,
    engine,
    observed,
    outcome,
    request,
    step,
)
from vllm_ascend_spec.config.tree_shape import comb
from vllm_ascend_spec.control import pause_log
from vllm_ascend_spec.control.adaptive_k import PAYS, PROBE, UNKNOWN, AdaptiveK, KChoice
from vllm_ascend_spec.control.pause_log import PauseLog
from vllm_ascend_spec.control.scheduler import StepK, count_on_chain
from vllm_ascend_spec.control.step_timer import StepTimer, TimedStep
from vllm_ascend_spec.step_report import (
    COSTLY,
    FIXED,
    PAST,
    REJECTED,
    SCHEDULED,
    StepReport,
    TreeCounts,
)


def test_accepted_drafts_are_counted_by_position() -> None:
    scheduler = Scheduler()
    drafted = step({"a": [7, 8, 9], "b": [7, 8, 9], "c": []})
    found = scheduler.update_from_output(drafted, outcome({"a": [7, 8, 5], "b": [4], "c": [1]}))
    assert found == "vLLM's"
    # a: two accepted, so all three were looked at; b: the first was rejected.
    assert observed(scheduler) == [2, 1, 1]


def test_how_far_a_path_follows_the_chain_is_known_where_the_drafts_are() -> None:
    """Of a tree the first drafts are the chain; those that follow are beside it."""
    assert count_on_chain([1, 2, 3, 7, 8], [1, 2, 3, 9]) == 3
    assert count_on_chain([1, 2, 3, 7, 8], [1, 8, 9]) == 1
    assert count_on_chain([1, 2, 3, 7, 8], [7, 9]) == 0
    assert count_on_chain([1, 2, 3, 7, 8], [9]) == 0
    # The token after the accepted ones is no draft, whatever it is.
    assert count_on_chain([1, 2], [1, 2, 7]) == 2
    assert count_on_chain([1, 2], [1]) == 0
    # With steps that are scheduled ahead the drafts are only on the device.
    assert count_on_chain([-1, -1], [1, 2]) is None


def test_trees_are_counted_apart_from_chains() -> None:
    """What a path beside the chain yields is no chain's; the chain is known by its own drafts."""

    class Trees(Adaptive):
        num_spec_tokens = 6
        vllm_config = engine(length="adaptive", k_values=(0, 2, 6), tree=comb(2, 3))

    scheduler = Trees()
    tree = step({"a": [1, 2, 3, 4, 5, 6], "b": [1, 2, 3, 4, 5, 6]}, k=6, verified=6)
    decoding(scheduler, "a", "b")
    for _ in range(40):
        scheduler.update_from_output(tree, outcome({"a": [1, 5, 9], "b": [1, 2, 9]}))
    batch_class = scheduler.class_now()
    assert batch_class.chooser.expected_tokens(6) == pytest.approx(3.0, abs=0.1)
    assert batch_class.chooser.expected_tokens(2) == pytest.approx(2.5, abs=0.1)
    assert observed(scheduler)[2:] == [0, 0, 0, 0]
    stats = scheduler.make_stats(CUDAGraphStat(0, 0, 0, ""))
    trees = StepReport.parse(stats.cudagraph_stats.runtime_mode).trees
    assert trees == TreeCounts(verified=80, drafts=480, accepted=160, known=80, left=40)


def test_drafts_that_a_grammar_left_none_of_are_a_path_that_left_no_chain() -> None:
    """Where steps are not scheduled ahead both are known to be empty."""

    class Trees(Adaptive):
        num_spec_tokens = 6
        vllm_config = engine(length="adaptive", k_values=(0, 2, 6), tree=comb(2, 3))

    class Ahead(Trees):
        is_ahead = True

    chains = {}
    for kind in (Trees, Ahead):
        scheduler = kind()
        decoding(scheduler, "a", "b")
        for _ in range(60):
            taken = step({"a": [1, 2, 3, 4, 5, 6], "b": []}, k=6, verified=6)
            scheduler.update_from_output(taken, outcome({"a": [1, 2, 9], "b": [9]}))
        chains[kind] = scheduler.class_now().chooser.expected_tokens(2)
    assert chains[Trees] == pytest.approx(2.0, abs=0.2)
    assert chains[Ahead] > 2.4


def test_padding_is_no_tree() -> None:
    """vLLM pads the first step of a request that has one token left to compute."""

    class Trees(Adaptive):
        num_spec_tokens = 6
        vllm_config = engine(length="adaptive", k_values=(0, 2, 6), tree=comb(2, 3))

    scheduler = Trees()
    decoding(scheduler, "a", "b")
    padded = step({"a": [1, 2, 3, 4, 5, 6], "b": [-1] * 6}, k=6, verified=6)
    scheduler.update_from_output(padded, outcome({"a": [1, 2, 9], "b": [9]}))
    stats = scheduler.make_stats(CUDAGraphStat(0, 0, 0, ""))
    trees = StepReport.parse(stats.cudagraph_stats.runtime_mode).trees
    assert trees == TreeCounts(verified=1, drafts=6, accepted=2, known=1)


def test_requests_that_ended_or_were_thrown_out_are_passed_over() -> None:
    scheduler = Scheduler()
    scheduler.update_from_output(step({"a": [7], "gone": [7]}), outcome({"a": []}))
    assert observed(scheduler) == [0, 0, 0]


def test_drafts_that_the_grammar_ruled_out_do_not_count() -> None:
    scheduler = Scheduler()
    drafted = step({"a": [7, -1, -1]}, invalid={"a": 2})
    scheduler.update_from_output(drafted, outcome({"a": [7, 5]}))
    assert observed(scheduler) == [1, 0, 0]


@pytest.mark.parametrize(
    ("scheduled", "found"),
    [
        (step({"a": [1, 2, 3], "b": [1, 2, 3]}), TimedStep(2, 3, has_prompts=False)),
        (step({"a": [], "b": []}, k=0), TimedStep(2, 0, has_prompts=False)),
        # A method that finds what it finds.
        (step({"a": [1], "b": [1, 2]}), TimedStep(2, 3, has_prompts=False)),
        (step({"a": [1, 2, 3]}, prompts=40), TimedStep(2, 3, has_prompts=True)),
    ],
)
def test_steps_with_prompts_are_told_apart(
    scheduled: Any, found: TimedStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[TimedStep] = []
    monkeypatch.setattr(StepTimer, "ended", lambda self, step, now: seen.append(step))
    Scheduler().update_from_output(scheduled, outcome({}))
    assert seen == [found]


def test_steps_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, now = Scheduler(), iter([0.0, 1.0, 1.5, 2.1])
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    for _ in range(4):
        scheduler.update_from_output(step({"a": [1, 2, 3]}), outcome({"a": [1]}))
    # Nothing was scheduled, so nothing ended.
    scheduler.update_from_output(step({}), outcome({}))
    assert scheduler.chooser.costs.seconds(1, 3) == pytest.approx(0.5)


def test_each_step_has_the_k_that_is_chosen_for_it() -> None:
    scheduler = Scheduler()
    out = scheduler.schedule(4)
    assert out.num_spec_tokens_to_schedule == scheduler.chooser.choice.k == 3
    assert StepK.of(out) == StepK(3, UNKNOWN, verified=3)


def sampling(name: str, temperature: float) -> Any:
    """Return a request that draws its tokens, or not."""
    params = SimpleNamespace(extra_args=None, temperature=temperature, seed=None)
    return SimpleNamespace(
        request_id=name, sampling_params=params, spec_token_ids=[], num_computed_tokens=0
    )


def test_batches_that_sample_are_known_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """What greedy requests accepted says nothing of others, nor does the time of their steps."""
    scheduler, now = Scheduler(), iter([0.0, 1.0, 1.5, 2.1, 9.0, 9.8, 10.0, 10.3])
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    greedy, drawn = sampling("a", 0.0), sampling("b", 0.8)
    for running, tokens in (((greedy,), [1, 2, 3, 4]), ((greedy, drawn), [1])):
        scheduler.running = running
        for _ in range(4):
            assert scheduler.choose_k(1)[0] == 3
            scheduler.update_from_output(step({"a": [1, 2, 3]}), outcome({"a": tokens}))
    first, second = scheduler.classes[False].chooser, scheduler.classes[True].chooser
    assert first.acceptance.rates()[0] > 0.7 > second.acceptance.rates()[0]
    # From the greedy ones to the others 6.9 seconds went by, which were no step of the latter.
    assert first.costs.seconds(1, 3) == pytest.approx(0.5)
    assert second.costs.seconds(1, 3) == pytest.approx(0.2)


def test_auto_chooses_between_k_and_none_for_all_requests_alike() -> None:
    scheduler = Auto()
    assert scheduler.k_values == [0, 3]
    assert all(found.per_request is None for found in scheduler.classes.values())


@pytest.mark.parametrize(("k", "reason"), [(0, COSTLY), (3, PAYS)])
def test_k_is_chosen_though_a_request_has_a_seed(k: int, reason: str) -> None:
    """Its text does not depend on K."""
    scheduler = Auto()
    for found in scheduler.classes.values():
        found.chooser.choose = lambda requests: KChoice(k, PAYS)  # type: ignore[method-assign]
    drawn = sampling("b", 0.8)
    drawn.sampling_params.seed = 7
    scheduler.running = (sampling("a", 0.0), drawn)
    out = scheduler.schedule(2)
    assert out.num_spec_tokens_to_schedule == k
    assert StepK.of(out).reason == reason


def test_requests_that_got_no_drafts_count_in_what_a_step_yields() -> None:
    """Where n-grams find nothing a step with drafts is no better than one without."""
    scheduler = Scheduler()
    decoding(scheduler, "found", "some", "nothing", "denied")
    scheduler._limits["denied"] = 0
    drafted = step({"found": [1, 2, 3], "some": [1], "nothing": [], "denied": []}, verified=3)
    tokens = {"found": [1, 2, 3, 4], "some": [1, 2], "nothing": [1], "denied": [1]}
    scheduler.update_from_output(drafted, outcome(tokens))
    acceptance = scheduler.chooser.acceptance
    assert [round(n) for n in acceptance._verified] == [3, 2, 1]
    assert [round(n) for n in acceptance._accepted] == [2, 1, 1]
    # What is told of drafts is of those that there were.
    assert [round(n) for n in scheduler.acceptance._verified] == [2, 1, 1]


def test_a_step_behind_one_without_drafts_says_nothing_of_them() -> None:
    scheduler = Scheduler()
    decoding(scheduler, "a")
    scheduler.update_from_output(step({"a": []}), outcome({"a": [1]}))
    assert observed(scheduler) == [0, 0, 0]


@pytest.mark.parametrize("is_stale", [True, False])
def test_what_vllm_throws_away_is_not_counted(is_stale: bool) -> None:
    """A request has ended, or was preempted and resumed, since the step was scheduled."""
    scheduler = Scheduler()
    decoding(scheduler, "a", "gone")
    if is_stale:
        vars(scheduler.requests["gone"]).update(num_stale_output_tokens=4, drop_stale_output=True)
    else:
        scheduler.requests["gone"].is_finished = lambda: True
    tokens = {"a": [1, 2, 3, 4], "gone": [1, 2, 3, 4]}
    scheduler.update_from_output(step({"a": [1, 2, 3], "gone": [1, 2, 3]}), outcome(tokens))
    assert observed(scheduler) == [1, 1, 1]
    assert scheduler.acceptance.num_observed == 1


def test_a_text_that_is_computed_again_says_nothing_of_drafts() -> None:
    """After a preemption a request has written tokens, and its steps are chunks of a prompt."""
    scheduler = Scheduler()
    decoding(scheduler, "a", "preempted")
    for _ in range(3):
        again = step({"a": [1, 2, 3]}, verified=3)
        again.num_scheduled_tokens["preempted"] = 60
        scheduler.update_from_output(again, outcome({"a": [1, 2, 3, 4], "preempted": []}))
    assert observed(scheduler) == [3, 3, 3]


def test_what_was_accepted_counts_for_the_batch_that_was_verified() -> None:
    """With asynchronous scheduling the next step, of another batch, is scheduled before it ends."""
    scheduler = Scheduler()
    scheduler.running = (sampling("a", 0.0),)
    greedy = step({"a": [1, 2, 3]})
    scheduler._update_after_schedule(greedy)
    scheduler.running = (sampling("b", 0.8),)
    scheduler._update_after_schedule(step({"b": [1, 2, 3]}))
    scheduler.update_from_output(greedy, outcome({"a": [1, 2, 3, 4]}))
    first, second = (scheduler.classes[samples].chooser.acceptance for samples in (False, True))
    assert [round(n) for n in first._verified] == [1, 1, 1]
    assert [round(n) for n in second._verified] == [0, 0, 0]


def test_another_class_of_batch_brings_its_own_limits() -> None:
    scheduler = Scheduler()
    for samples, limits in ((False, {}), (True, {"b": 1})):
        scheduler.classes[samples].limits = limits
        scheduler.classes[samples]._until_limits = 9  # until they are made anew
    for drawn, limits in ((False, {}), (True, {"b": 1}), (False, {})):
        scheduler.running = (sampling("b", 0.8 if drawn else 0.0),)
        scheduled = step({"b": [1, 2, 3]})
        scheduler._update_after_schedule(scheduled)
        scheduler.update_from_output(scheduled, outcome({"b": [1, 2, 3, 4]}))
        assert scheduler._limits == limits


def hopeless_batch(scheduler: Scheduler, steps: int) -> None:
    """Let request a accept all of its drafts and b none."""
    drafted = {"a": [1, 2, 3], "b": [1, 2, 3][: scheduler._limits.get("b", 3)]}
    for _ in range(steps):
        scheduler.update_from_output(step(drafted), outcome({"a": [1, 2, 3, 4], "b": [9]}))


@pytest.mark.parametrize(("row_seconds", "limit"), [(0.01, 0), (0.0, None)])
def test_hopeless_drafts_are_not_verified_where_rows_cost_time(
    row_seconds: float, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # These steps take no time.
    monkeypatch.setattr(StepTimer, "ended", lambda self, step, now: None)
    scheduler = Scheduler()
    for requests, k in ((1, 0), (1, 3), (2, 0), (2, 3)):
        for _ in range(3):
            seconds = 0.002 + row_seconds * requests * (k + 1)
            scheduler.chooser.costs.note(requests, k, seconds)
    scheduler.chooser.choice = KChoice(3, PAYS)
    hopeless_batch(scheduler, 24)
    assert scheduler._limits.get("b") == limit
    assert scheduler._limits.get("a", 3) == 3
    # While a length is looked at, its steps have to be whole ones.
    scheduler.chooser.choice = KChoice(3, PROBE)
    hopeless_batch(scheduler, 8)
    assert "b" not in scheduler._limits


def test_a_pause_and_its_end_are_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(
        pause_log.logger, "log", lambda level, text, *args: lines.append((level, text % args))
    )
    reporter = PauseLog(AdaptiveK([0, 3]))
    for drafts, reason in ((3, PAYS), (0, PAYS), (0, PAYS), (3, PROBE), (0, PAYS), (3, PAYS)):
        reporter.note(KChoice(drafts, reason), 8)
    assert [level for level, _ in lines] == [logging.INFO] * 2
    assert lines[0][1].startswith("Drafting pauses: it does not pay in a batch of 8 requests")
    assert lines[1][1].startswith("Drafting goes on with K=3")


def test_requests_have_as_many_drafts_as_they_want() -> None:
    scheduler = Fixed()
    for name, value in (("a", None), ("off", "off"), ("one", 1)):
        scheduler.add_request(request(name, value and {"speculation": value}))
    names = ["a", "off", "one", "gone"]
    # The last ones pad the batch of a full graph.
    drafts = SimpleNamespace(req_ids=names, draft_token_ids=[[5, 6, 7] for _ in (*names, 0, 0)])
    scheduler.update_draft_token_ids(drafts)
    assert scheduler.taken_up == {"a": [5, 6, 7], "off": [], "one": [5], "gone": [5, 6, 7]}


def test_places_of_steps_scheduled_ahead_are_as_many() -> None:
    scheduler = Fixed()
    for name, value in (("a", None), ("off", 0), ("one", 1)):
        scheduler.add_request(request(name, {"speculation": value} if value is not None else None))
    scheduler._update_after_schedule(step({}))
    places = {name: len(found.spec_token_ids) for name, found in scheduler.requests.items()}
    assert places == {"a": 3, "off": 0, "one": 1}


@pytest.mark.parametrize("cls", [Fixed, Scheduler])
def test_requests_that_are_gone_are_forgotten(cls: type) -> None:
    scheduler = cls()
    for name in ("ended", "again", "runs"):
        scheduler.add_request(request(name, {"speculation": 1}))
    drafts = {name: [1] for name in scheduler.requests}
    tokens = {name: [1, 2] for name in drafts}
    scheduler.update_from_output(step(drafts), outcome(tokens))
    # Whoever was aborted may have come back by the same id.
    del scheduler.requests["ended"]
    late = step({"runs": [1]}, finished=("ended", "again"))
    scheduler.update_from_output(late, outcome({"runs": [1, 2]}))
    known = [scheduler._most_drafts, scheduler._limits]
    if isinstance(scheduler, Scheduler):
        known.append(scheduler.classes[False].per_request._counts)  # type: ignore[union-attr]
    assert [sorted(names) for names in known] == [["again", "runs"]] * len(known)
    # vLLM names an id once, also where a connector keeps the request's blocks for a while.
    del scheduler.requests["again"]
    scheduler.update_from_output(step({"runs": [1]}), outcome({"runs": [1, 2]}))
    assert [sorted(names) for names in known] == [["runs"]] * len(known)
    assert scheduler._ended_ids == set()


def test_each_step_is_reported_once() -> None:
    scheduler = Fixed()
    verified = {3: (1, 0)}
    worker = StepReport(graph="FULL", batch_k=3, step_us=7)
    for stat in (CUDAGraphStat(4, 4, 0, worker.encode()), None):
        scheduler.update_from_output(step({"a": [1, 2, 3]}), outcome({"a": [1]}))
        found = StepReport.parse(scheduler.make_stats(stat).cudagraph_stats.runtime_mode)
        wanted = {"k": 3, "k_reason": FIXED, "method": "eagle", "verified": verified}
        known = {"graph": "FULL", "batch_k": 3, "step_us": 7} if stat else {}
        assert found == StepReport(**wanted, **known)
        assert scheduler.make_stats(stat).cudagraph_stats is stat


class Short(Fixed):
    """With a draft model for 10 tokens, and a target for 64."""

    vllm_config = engine(context=10)


class ShortInFullGraphs(Fixed):
    """The same, with as many rows for each request."""

    vllm_config = engine(context=10, is_full=True)


@pytest.mark.parametrize(("cls", "kept"), [(Short, [3, 1, 0]), (ShortInFullGraphs, [3, 3, 3])])
def test_requests_past_the_draft_models_context_have_no_drafts(
    cls: type[Fixed], kept: list[int]
) -> None:
    scheduler = cls()
    lengths = {"short": 5, "near": 9, "past": 12}
    for name, length in lengths.items():
        one = request(name)
        one.num_tokens, one.num_output_placeholders = length, 0
        scheduler.add_request(one)
    scheduler.running = [*scheduler.requests.values()]
    drafts = {name: [5, 6, 7] for name in lengths}
    scheduler.update_from_output(step({}), outcome({}))
    scheduler.update_draft_token_ids(
        SimpleNamespace(req_ids=list(drafts), draft_token_ids=list(drafts.values()))
    )
    assert [len(tokens) for tokens in scheduler.taken_up.values()] == kept
    # What is verified in vain tells nothing of the draft model.
    scheduler.update_from_output(step(drafts), outcome({name: [5] for name in drafts}))
    assert [round(n) for n in scheduler.acceptance._verified] == [2, 0, 0]


class ShortAuto(Auto):
    """With K or 0, and a draft model for 10 tokens, in full graphs."""

    vllm_config = engine(context=10, is_full=True, length="auto", k_values=(0, 3))


@pytest.mark.parametrize(("lengths", "past"), [([12, 30], True), ([12, 5], False), ([], False)])
def test_a_batch_past_the_draft_models_context_makes_no_drafts(
    lengths: list[int], past: bool
) -> None:
    """In full graphs every request has K+1 rows, so one within it lets all have them."""
    scheduler = ShortAuto()
    for place, length in enumerate(lengths):
        one = sampling(str(place), 0.0)
        one.num_tokens, one.num_output_placeholders = length, 0
        scheduler.add_request(one)
    scheduler.running = tuple(scheduler.requests.values())
    found = StepK.of(scheduler.schedule(max(1, len(lengths))))
    assert (found.k == 0 and found.reason == PAST) is past


class Scheduled(Fixed):
    """With a schedule of K by the number of requests."""

    vllm_config = engine(((1, 2, 3), (3, 3, 1), (4, 4, 0), (5, 9, 2)))
    # Where vLLM sees the schedule, too.
    dynamic_sd_lookup = (0, 3, 3, 1, 0, 2)


def test_requests_are_padded_to_the_drafts_that_the_others_carry() -> None:
    """These were made in the step before; stock pads nothing where K is looked up."""
    scheduler = Scheduled()
    found = [scheduler.schedule(requests) for requests in (3, 4, 5, 0, 1)]
    # A step without requests makes none.
    assert [out.num_spec_tokens_to_schedule for out in found] == [1, 0, 2, 2, 3]
    # Nobody carries drafts behind the step that made none.
    assert [out.padded for out in found] == [3, 1, None, 2, 2]
    assert scheduler.num_spec_tokens == 3
    assert StepK.of(found[0]).reason == SCHEDULED


class LockStep(Scheduled):
    """One of two replicas of a mixture of experts."""

    vllm_config = engine(((1, 2, 3), (3, 3, 1), (4, 4, 0), (5, 9, 2)), copies=2)


def test_lockstep_replicas_make_all_drafts_and_verify_the_first_of_them() -> None:
    scheduler = LockStep()
    for requests, k in ((3, 1), (4, 0), (5, 2)):
        out = scheduler.schedule(requests)
        assert out.num_spec_tokens_to_schedule == 3
        drafts = SimpleNamespace(
            req_ids=["a", "b"], draft_token_ids=[[7, 8, 9], [7, 8, 9]], num_invalid=None
        )
        scheduler.update_draft_token_ids(drafts)
        assert scheduler.taken_up == {"a": [7, 8, 9][:k], "b": [7, 8, 9][:k]}
        scheduler.update_from_output(out, outcome({"a": [1]}))
        found = StepReport.parse(scheduler.make_stats().cudagraph_stats.runtime_mode)
        assert (found.k, found.k_reason) == (k, SCHEDULED)


def test_a_fixed_length_is_padded_to_as_ever() -> None:
    found = [Fixed().schedule(requests) for requests in (1, 5)]
    assert [(out.padded, out.num_spec_tokens_to_schedule) for out in found] == [(3, 3)] * 2


@pytest.mark.parametrize(("is_low", "reason"), [(False, COSTLY), (True, REJECTED)])
def test_a_pause_says_why(is_low: bool, reason: str) -> None:
    scheduler = Scheduler()
    scheduler.chooser.choose = lambda requests: KChoice(0, PAYS)  # type: ignore[method-assign]
    scheduler._alarm.is_low = is_low
    assert scheduler.choose_k(1) == (0, reason)


def test_nothing_scheduled_tells_nothing() -> None:
    scheduler = Fixed()
    scheduler.update_from_output(step({}), outcome({}))
    assert scheduler.make_stats().cudagraph_stats is None
