"""K chosen among chains and trees, on engines made of formulas."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest

from vllm_ascend_spec.config.resolved import SpecConfig
from vllm_ascend_spec.config.tree_shape import comb
from vllm_ascend_spec.control.batch_class import BatchClass
from vllm_ascend_spec.control.cost_model import CostModel
from vllm_ascend_spec.control.step_timer import TimedStep
from vllm_ascend_spec.control.tree_tokens import DraftShapes, TreeTokens

CHAIN, ALL = 5, 15
LENGTHS = (0, 1, 2, 3, 5, 10, 15)
# Seconds of a step: requests, rows, passes of the draft, whether attention follows trees.
Cost = Callable[[int, int, int, bool], float]


def speculation(**values: object) -> SpecConfig:
    """Return the record of an engine that chooses K."""
    common = {"device": "cpu", "family": "vllm", "method": "eagle3", "vllm_method": "eagle3"}
    return SpecConfig(**{**common, "drafter": (), "draft_length": "adaptive", **values})  # type: ignore[arg-type]


SHAPES = DraftShapes.of(
    speculation(max_k=ALL, tree=comb(CHAIN, 3), has_trees=True, draft_lengths=LENGTHS)
)


def accelerator(requests: int, rows: int, passes: int, is_tree: bool) -> float:
    """Some rows are free, and passes of the draft are not."""
    return 0.010 + 0.0002 * max(0, rows - 40) + 0.0006 * passes + 0.0001 * is_tree


def path_by_path(requests: int, rows: int, passes: int, is_tree: bool) -> float:
    """Attention takes a call for each path, as on a CPU."""
    return 0.010 + 0.0001 * rows + 0.0006 * passes + 0.009 * is_tree


@dataclass
class Engine:
    """Requests that decode for ever.

    Attributes:
        cost: of a step.
        rate: how often the next draft of the principal chain is right.
        beside: how often one beside it is, where it is not.
        seconds: spent so far.
        tokens: written so far.
        chosen: K of each step.
        is_ahead: whether steps are scheduled ahead, so that only the lengths of paths are known.
    """

    cost: Cost
    rate: float
    beside: float
    seed: int = 0
    seconds: float = 0.0
    tokens: int = 0
    chosen: list[int] = field(default_factory=list)
    is_ahead: bool = False

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.before = 0

    def accepted(self, drafts: int) -> tuple[int, int]:
        """Return the length of a request's accepted path, and of its part on the chain."""
        for depth in range(min(drafts, CHAIN)):
            if self.random.random() >= self.rate:
                is_covered = depth < (drafts - CHAIN) // 2
                return depth + (is_covered and self.random.random() < self.beside), depth
        return min(drafts, CHAIN), min(drafts, CHAIN)

    def step(self, requests: int, drafts: int, kind: BatchClass | None = None) -> None:
        """Verify the drafts of the step before and make ``drafts`` new ones."""
        rows, is_tree = requests * (self.before + 1), self.before > CHAIN
        seconds = self.cost(requests, rows, min(drafts, CHAIN), is_tree)
        self.seconds += seconds * max(0.5, self.random.gauss(1.0, 0.03))
        for request in range(requests):
            accepted, on_chain = self.accepted(self.before)
            self.tokens += accepted + 1
            if kind is not None and self.before:
                known = None if self.is_ahead else on_chain
                kind.note(f"r{request}", self.before, accepted, on_chain=known)
        if kind is not None:
            running = [f"r{request}" for request in range(requests)]
            kind.ended(TimedStep(requests, drafts, has_prompts=False), self.seconds, running)
        self.before = drafts
        self.chosen.append(drafts)

    def run(self, batches: Iterable[int], kind: BatchClass) -> None:
        """Let ``kind`` choose."""
        for requests in batches:
            self.step(requests, kind.choose(requests).k, kind)

    @property
    def speed(self) -> float:
        """Tokens per second so far."""
        return self.tokens / self.seconds


def chooser(*, may_be_ragged: bool = False) -> BatchClass:
    return BatchClass(LENGTHS, may_be_ragged=may_be_ragged, shapes=SHAPES)


def fixed(cost: Cost, rate: float, beside: float, requests: int, drafts: int) -> float:
    engine = Engine(cost, rate, beside, seed=99)
    for _ in range(1500):
        engine.step(requests, drafts)
    return engine.speed


def share(engine: Engine, drafts: Iterable[int], last: int = 600) -> float:
    """Return how many of the last steps had one of some K."""
    return sum(map(engine.chosen[-last:].count, drafts)) / last


AHEAD = pytest.mark.parametrize("is_ahead", [False, True], ids=["step by step", "ahead"])


@AHEAD
@pytest.mark.parametrize("may_be_ragged", [False, True])
@pytest.mark.parametrize("requests", [1, 2])
def test_trees_at_small_batches_and_chains_or_less_at_large_ones(
    requests: int, may_be_ragged: bool, is_ahead: bool
) -> None:
    for seed in range(2):
        engine = Engine(accelerator, 0.65, 0.5, seed, is_ahead=is_ahead)
        kind = chooser(may_be_ragged=may_be_ragged)
        engine.run([requests] * 900, kind)
        assert share(engine, (10, 15)) > 0.8
        engine.run([64] * 300, kind)
        assert share(engine, (10, 15), last=200) == 0
        # Neither is learned again.
        engine.run([requests] * 300, kind)
        assert share(engine, (10, 15), last=300) > 0.8


@AHEAD
@pytest.mark.parametrize("requests", [1, 2, 8])
def test_no_tree_where_it_loses(requests: int, is_ahead: bool) -> None:
    """But for probes: at the start, and ever more seldom."""
    for seed in range(3):
        engine = Engine(path_by_path, 0.65, 0.5, seed, is_ahead=is_ahead)
        engine.run([requests] * 1500, chooser())
        assert share(engine, (10, 15), last=1000) < 0.03
        assert share(engine, (1, 2, 3, 5), last=1000) > 0.9


@AHEAD
@pytest.mark.parametrize("rate", [0.05, 0.4, 0.8])
@pytest.mark.parametrize("requests", [1, 8])
@pytest.mark.parametrize("cost", [accelerator, path_by_path])
def test_nearly_as_fast_as_the_best_fixed_choice(
    cost: Cost, requests: int, rate: float, is_ahead: bool
) -> None:
    best = max(fixed(cost, rate, 0.4, requests, k) for k in LENGTHS)
    speeds = []
    for seed in range(3):
        engine = Engine(cost, rate, 0.4, seed, is_ahead=is_ahead)
        engine.run([requests] * 1500, chooser())
        speeds.append(engine.speed)
    assert sum(speeds) / len(speeds) >= 0.93 * best


@AHEAD
def test_a_tree_comes_back_when_drafts_are_accepted_again(is_ahead: bool) -> None:
    """While chains are chosen, what a tree yields moves with what they yield."""
    for seed in range(3):
        engine, kind = Engine(accelerator, 0.7, 0.5, seed, is_ahead=is_ahead), chooser()
        engine.run([2] * 600, kind)
        assert share(engine, (10, 15), last=200) > 0.7
        engine.rate, engine.beside = 0.15, 0.02
        engine.run([2] * 600, kind)
        assert share(engine, (10, 15), last=200) < 0.1
        engine.rate, engine.beside = 0.7, 0.5
        engine.run([2] * 1200, kind)
        assert share(engine, (10, 15), last=200) > 0.7


@AHEAD
@pytest.mark.parametrize("requests", [1, 2, 8])
def test_a_tree_is_left_when_drafts_are_accepted_no_more(requests: int, is_ahead: bool) -> None:
    """What is accepted of its chain moves what is expected of chains."""
    for seed in range(2):
        engine = Engine(accelerator, 0.75, 0.5, seed, is_ahead=is_ahead)
        kind = chooser()
        engine.run([requests] * 600, kind)
        engine.rate, engine.beside = 0.05, 0.05
        engine.run([requests] * 900, kind)
        assert share(engine, (10, 15), last=300) < 0.1


def test_a_tree_of_which_no_path_is_seen_is_not_tried_for_ever() -> None:
    """Requests may limit their drafts to fewer than a tree has."""
    kind = chooser()
    engine = Engine(accelerator, 0.65, 0.5)
    for _ in range(1500):
        drafts = kind.choose(2).k
        engine.step(2, min(drafts, 3), kind)
        kind.chooser.costs.note(2, drafts, 0.011)
    latest = [kind.choose(2) for _ in range(60)]
    assert not any(choice.k in (10, 15) and choice.reason == "unknown" for choice in latest)


def test_counted_as_chains_trees_would_be_taken_for_longer_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control: of a path beside the chain a chain would have nothing."""
    truth = 1 + sum(0.4**depth for depth in range(1, CHAIN + 1))

    def error() -> float:
        engine, kind = Engine(accelerator, 0.4, 0.8), chooser()
        for drafts in [15] * 400 + [5] * 40:
            engine.step(2, drafts, kind)
        return abs(kind.chooser.expected_tokens(5) - truth)

    assert error() < 0.25
    monkeypatch.setattr(
        TreeTokens, "note", lambda _, drafts, accepted, on_chain: (drafts, accepted)
    )
    assert error() > 0.35


def test_a_tree_is_no_chain_of_as_many_drafts_to_the_cost_model() -> None:
    """What a chain costs in a batch that was not measured is told by chains."""

    def error(passes: dict[int, int], requests: int) -> float:
        costs = CostModel(passes)
        for n, drafts in [(1, 0), (1, 1), (1, 8), (4, 0), (4, 1), (4, 8)]:
            for _ in range(3):
                seconds = accelerator(n, n * (drafts + 1), min(drafts, CHAIN), drafts > CHAIN)
                costs.note(n, drafts, seconds)
        estimate = costs.seconds(requests, CHAIN)
        assert estimate is not None
        return abs(estimate / accelerator(requests, requests * (CHAIN + 1), CHAIN, False) - 1)

    for requests in (1, 4, 6):
        assert error({8: CHAIN}, requests) < 0.01
        # Negative control.
        assert error({}, requests) > 0.05


def test_what_is_a_tree_is_known_from_its_shape() -> None:
    assert DraftShapes(CHAIN, passes={10: 5, 15: 5}) == SHAPES
    found = DraftShapes.of(speculation(max_k=12, has_trees=True, draft_lengths=(0, 3, 12)))
    assert found == DraftShapes(1, is_found=True)
    assert DraftShapes.of(speculation(max_k=3, draft_lengths=(0, 3))) == DraftShapes(3)


def test_trees_that_are_found_have_a_mean_for_each_size() -> None:
    """Larger ones reach the right token more often; no chain tells of it."""
    shapes = DraftShapes(1, is_found=True)
    kind = BatchClass((0, 2, 8), may_be_ragged=True, shapes=shapes)
    for _ in range(300):
        kind.note("a", 2, 1)
        kind.note("a", 8, 2)
    assert kind.chooser.expected_tokens(2) == pytest.approx(2.0, abs=0.1)
    assert kind.chooser.expected_tokens(8) == pytest.approx(3.0, abs=0.1)
    assert kind.per_request is None


def test_requests_of_a_tree_are_not_limited_one_by_one() -> None:
    engine, kind = Engine(accelerator, 0.5, 0.5), chooser(may_be_ragged=True)
    for drafts in [5] * 20 + [15] * 60:
        engine.step(2, drafts, kind)
        kind.chooser.choice = kind.chooser.choice.__class__(drafts, "pays")
    assert kind.limits == {}
