"""What the runner tells verifier and drafter of the requests' seeds, in vLLM's own batches."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm import SamplingParams
from vllm.v1.worker.cpu_model_runner import CPUModelRunner
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from tests.marks import requires_cpu_build
from tests.verification.requests import VOCAB, Request, budget_holder, seeded_step_by_step
from tests.worker.runners import (
    MOST_REQUESTS,
    STALE,
    as_request,
    enter,
    leave,
    make_runner,
    make_state,
    sample,
)
from vllm_ascend_spec.config.rules import MOST_TOP_K
from vllm_ascend_spec.verification.sampler import SpecVerifier
from vllm_ascend_spec.worker.hidden_seeds import ATTRIBUTE
from vllm_ascend_spec.worker.runner import SpecRunnerMixin
from vllm_ascend_spec.worker.seeded_sampling import SeededSamplingMixin

pytestmark = requires_cpu_build
STOCK = [CPUModelRunner, GPUModelRunner]
TABLE = torch.randn(64, VOCAB, generator=torch.Generator().manual_seed(0))


def by_name(*states: Any) -> dict[str, Any]:
    return {state.req_id: state for state in states}


def test_every_runner_of_ours_samples_so() -> None:
    assert issubclass(SpecRunnerMixin, SeededSamplingMixin)


class TestNoise:
    """The noise of a step: seeds, and the positions of the next tokens."""

    def states(self) -> dict[str, Any]:
        return by_name(
            make_state("a", seed=7, output=[4, 5]),
            make_state("greedy", temperature=0.0, seed=7, prompt=[1]),
            make_state("free", prompt=[1, 2]),
            make_state("b", seed=8, prompt=[3] * 9),
        )

    @pytest.mark.parametrize(
        "drafts",
        [
            None,
            {"a": [1, 2, 3], "free": [4], "b": [5]},
            # Async scheduling knows no drafts yet and counts them all.
            {"a": [-1, -1, -1], "b": [-1, -1, -1], "free": [-1], "greedy": [-1, -1]},
        ],
        ids=["no drafts", "drafts", "placeholders"],
    )
    def test_positions_are_the_lengths_of_the_texts(self, drafts: Any) -> None:
        runner, states = make_runner(), self.states()
        enter(runner, *states.values())
        sample(runner, states, TABLE, drafts)
        noise = runner.noise_of_step
        assert noise.seeds.dtype == noise.positions.dtype == torch.int64
        assert noise.positions.tolist() == [5, 1, 2, 9]
        assert noise.seeds[[0, 3]].tolist() == [7, 8]
        assert noise.unseeded.tolist() == [False, False, True, False]

    def test_entries_behind_the_batch_are_left_out(self) -> None:
        runner, state = make_runner(), make_state("a", seed=7)
        enter(runner, state)
        sample(runner, {"a": state}, TABLE)
        assert runner.seq_lens.tolist() == [3, *[STALE] * (MOST_REQUESTS - 1)]
        assert runner.noise_of_step.positions.tolist() == [3]
        assert runner.noise_of_step.unseeded is None

    def test_drafts_follow_the_tokens_of_the_step(self) -> None:
        runner, states = make_runner(), self.states()
        enter(runner, *states.values())
        right = seeded_step_by_step(as_request(states["a"]), TABLE[5:6], 7)
        found = sample(runner, states, TABLE, {"a": [*right, -1, 3], "b": [-1], "free": [2]})
        assert len(found["a"]) == 2
        assert len(found["b"]) == 1
        lengths = [3 + len(states["a"].output_token_ids), 2, 2 + len(found["free"]), 10]
        assert runner.noise_of_drafts.positions.tolist() == lengths
        assert runner.noise_of_drafts.seeds is runner.noise_of_step.seeds
        # So the next step's noise is what the drafts had.
        positions = runner.noise_of_drafts.positions
        sample(runner, states, TABLE)
        assert torch.equal(runner.noise_of_step.positions, positions)

    def test_without_a_seed_there_is_none(self) -> None:
        runner, states = make_runner(), self.states()
        enter(runner, *states.values())
        sample(runner, states, TABLE)
        assert runner.noise_of_drafts is not None
        leave(runner, "a", "b")
        sample(runner, states, TABLE, {"free": [1]})
        assert runner.noise_of_step is None
        assert runner.noise_of_drafts is None

    def test_noise_of_an_earlier_step_is_gone_if_a_step_fails(self) -> None:
        runner, states = make_runner(), self.states()
        enter(runner, *states.values())
        sample(runner, states, TABLE)
        with pytest.raises(AttributeError):
            runner._sample(None, None)
        assert runner.noise_of_drafts is None

    def test_seeds_are_read_when_the_batch_changes_and_only_then(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reads: list[int] = []
        stock = SeededSamplingMixin._read_seeds

        def note(self: Any, sampling: Any) -> Any:
            reads.append(self.input_batch.num_reqs)
            return stock(self, sampling)

        monkeypatch.setattr(SeededSamplingMixin, "_read_seeds", note)
        runner, states = make_runner(), self.states()
        enter(runner, *list(states.values())[:3])
        for _ in range(3):
            sample(runner, states, TABLE)
            runner.input_batch.refresh_metadata()
        assert reads == [3]
        enter(runner, states["b"])
        sample(runner, states, TABLE)
        leave(runner, "a")
        sample(runner, states, TABLE)
        assert reads == [3, 4, 3]
        # Where "a" was, another request is now.
        names, noise = runner.input_batch.req_ids, runner.noise_of_step
        assert noise.seeds[names.index("b")] == 8
        assert noise.unseeded[names.index("free")]

    @pytest.mark.parametrize(
        ("seed", "signed"),
        [
            (0, 0),
            (2**63 - 1, 2**63 - 1),
            (2**63, -(2**63)),
            (2**64 - 1, -1),
            (-(2**63), -(2**63)),
            (-1, -1),
        ],
    )
    def test_seeds_are_signed_numbers_of_64_bits(self, seed: int, signed: int) -> None:
        runner, states = make_runner(), by_name(make_state("a"), make_state("b", seed=1))
        states["a"].generator = torch.Generator().manual_seed(seed)
        enter(runner, *states.values())
        found = sample(runner, states, TABLE)
        assert runner.noise_of_step.seeds.tolist() == [signed, 1]
        first = Request(states["a"].sampling_params, [1, 2, 3], [])
        assert found["a"] == seeded_step_by_step(first, TABLE[3:4], signed)


class TestGivenSeeds:
    """``verify_rule="seeded"``: requests without a seed get one."""

    def read(self, runner: Any) -> dict[str, int]:
        known = runner._seeds_of_batch()
        assert known.unseeded is None
        return dict(zip(runner.input_batch.req_ids, known.seeds.tolist(), strict=True))

    def test_it_lasts_as_long_as_the_request(self) -> None:
        runner = make_runner(rule="seeded")
        first, second, own = make_state("a"), make_state("b"), make_state("own", seed=5)
        enter(runner, first, own)
        before = self.read(runner)
        assert before["own"] == 5
        assert 0 <= before["a"] < 2**63
        enter(runner, second)
        after = self.read(runner)
        assert {name: after[name] for name in before} == before
        assert after["b"] != after["a"]
        leave(runner, "own", "a")
        assert self.read(runner) == {"b": after["b"]}
        enter(runner, first)
        assert self.read(runner) == {name: after[name] for name in ("b", "a")}

    def test_a_later_request_of_the_same_id_gets_another(self) -> None:
        runner = make_runner(rule="seeded")
        enter(runner, make_state("a"))
        before = self.read(runner)
        leave(runner, "a")
        enter(runner, make_state("a"))
        assert self.read(runner) != before

    def test_greedy_requests_get_none(self) -> None:
        runner, greedy = make_runner(rule="seeded"), make_state("greedy", temperature=0.0)
        enter(runner, greedy)
        assert runner._seeds_of_batch().seeds is None
        enter(runner, make_state("a"))
        assert self.read(runner)["greedy"] == 0
        assert not hasattr(greedy, ATTRIBUTE)

    def test_requests_with_a_top_k_may_be_the_only_ones(self) -> None:
        runner = make_runner(seeds_for="top_k")
        runner.drafter = SimpleNamespace(shares_noise=True)
        one, narrow, own = make_state("one"), make_state("narrow"), make_state("own", seed=5)
        wide = make_state("wide")
        for state, top_k in ((one, 0), (narrow, 3), (own, 3), (wide, MOST_TOP_K + 1)):
            state.sampling_params.top_k = top_k
        enter(runner, one, narrow, own, wide)
        known = runner._seeds_of_batch()
        assert known.unseeded.tolist() == [True, False, False, True]
        assert known.seeds[2] == 5
        assert known.seeds[1] == getattr(narrow, ATTRIBUTE)
        leave(runner, "one", "wide")
        assert self.read(runner).keys() == {"narrow", "own"}

    def test_drafts_without_the_noise_are_no_reason_for_one(self) -> None:
        runner, state = make_runner(seeds_for="top_k"), make_state("a")
        runner.drafter, state.sampling_params.top_k = SimpleNamespace(shares_noise=False), 3
        enter(runner, state)
        assert runner._seeds_of_batch().seeds is None

    def test_all_steps_go_to_the_verifier_and_drafts_have_noise(self) -> None:
        runner, states = make_runner(rule="seeded"), by_name(make_state("a"), make_state("b"))
        enter(runner, *states.values())
        seeds = self.read(runner)
        for drafts in (None, {"a": [1, 2], "b": [3]}):
            expected = {
                name: seeded_step_by_step(
                    as_request(state, (drafts or {}).get(name, ())),
                    TABLE[len(state.prompt_token_ids) + len(state.output_token_ids) :][:3],
                    seeds[name],
                )
                for name, state in states.items()
            }
            assert sample(runner, states, TABLE, drafts) == expected
            assert runner.noise_of_drafts.unseeded is None

    def test_ranks_that_see_the_same_requests_give_the_same(self) -> None:
        found = []
        for _ in range(2):
            runner = make_runner(rule="seeded")
            enter(runner, make_state("a"), make_state("b"))
            found.append(self.read(runner))
        assert found[0] == found[1]

    @pytest.mark.parametrize("rule", ["token", "block"])
    def test_other_rules_give_none(self, rule: str) -> None:
        runner = make_runner(rule=rule)
        enter(runner, make_state("a"))
        assert runner._seeds_of_batch().seeds is None
        enter(runner, make_state("own", seed=5))
        assert runner._seeds_of_batch().unseeded.tolist() == [True, False]


class TestText:
    """A text with a seed, whatever the steps were."""

    LENGTH, SEED = 14, 2**63 - 5

    def text(
        self, runner: Any, rng: random.Random, *, drafts: bool = False, moves: bool = False
    ) -> list[int]:
        """Write a text; with ``moves`` neighbours come and go, and the request is preempted."""
        own = make_state("own", seed=self.SEED)
        states = by_name(own, make_state("x"), make_state("y", seed=4), make_state("z", 0.0))
        enter(runner, own)
        while len(own.output_token_ids) < self.LENGTH:
            if moves:
                here = {*runner.input_batch.req_ids}
                names = [name for name in states if rng.random() < 0.4]
                leave(runner, *[name for name in names if name in here])
                enter(runner, *[states[name] for name in names if name not in here])
                for name in ("x", "y", "z"):
                    del states[name].output_token_ids[5:]
            if runner.input_batch.num_reqs:
                made = {name: self.drafts(state, rng) for name, state in states.items()}
                has_drafts = drafts and rng.random() < 0.7
                sample(runner, states, TABLE, made if has_drafts else None)
        return own.output_token_ids[: self.LENGTH]

    def drafts(self, state: Any, rng: random.Random) -> list[int]:
        """Return drafts of which most are right, if the seed is the one under test."""
        past = as_request(state)
        found: list[int] = []
        for _ in range(rng.randint(0, 3)):
            place = len(past.prompt) + len(past.output) + len(found)
            one = Request(past.params, past.prompt, [*past.output, *found])
            right = seeded_step_by_step(one, TABLE[place : place + 1], self.SEED)
            found += right if rng.random() < 0.8 else [-1]
        return found

    @pytest.mark.parametrize("rule", ["token", "block", "seeded"])
    @pytest.mark.parametrize("stock", STOCK)
    def test_it_is_the_same_with_drafts_neighbours_and_preemption(
        self, stock: type, rule: str
    ) -> None:
        alone = self.text(make_runner(stock), random.Random(0))
        accepted = 0
        for seed in range(4):
            runner, rng = make_runner(stock, rule=rule), random.Random(seed)
            count = counting_accepted(runner)
            found = self.text(runner, rng, drafts=bool(seed % 3), moves=seed > 0)
            assert found == alone
            accepted += sum(count)
        assert accepted > 10
        assert len(set(alone)) > 2

    def test_it_is_that_of_an_engine_without_speculation(self) -> None:
        rng = random.Random(0)
        expected = self.text(make_runner(), rng, drafts=True)
        assert self.text(without_speculation(), rng) == expected
        assert self.text(without_speculation(), rng, moves=True) == expected


def counting_accepted(runner: Any) -> list[int]:
    """Return a list that gets the number of accepted drafts of each of the runner's steps."""
    counts: list[int] = []
    stock = runner.rejection_sampler

    class Counting:
        seeds_for, speculates = stock.seeds_for, stock.speculates
        noise: Any = None

        def __call__(self, *arguments: Any) -> Any:
            stock.noise = self.noise
            output = stock(*arguments)
            counts.append(int((output.sampled_token_ids[:, 1:] >= 0).sum()))
            return output

    runner.rejection_sampler = Counting()
    return counts


def without_speculation() -> Any:
    """Return a runner of an engine without speculation."""
    runner = make_runner()
    del runner.rejection_sampler
    runner.vllm_config = type("Config", (), {})()
    runner.vllm_config.speculative_config = None
    runner.vllm_config.model_config = type("Model", (), {"logprobs_mode": "raw_logprobs"})()
    runner.sample_without_speculation()
    return runner


class TestWithoutSpeculation:
    def test_the_verifier_has_no_rule_and_gives_no_seeds(self) -> None:
        verifier = without_speculation().rejection_sampler
        assert isinstance(verifier, SpecVerifier)
        assert (verifier.seeds_for, verifier.synthetic, verifier.backend) == ("none", None, None)

    @pytest.mark.parametrize("temperature", [0.0, 1.0])
    def test_steps_without_a_seed_are_vllms(self, temperature: float) -> None:
        runner, state = without_speculation(), make_state("a", temperature, seed=None)
        enter(runner, state)
        runner.rejection_sampler = SpecVerifierThatFails()
        expected = []
        for _ in range(2):
            torch.manual_seed(1)
            expected.append(runner._sample(TABLE[3:4].clone(), None).sampled_token_ids.tolist())
        torch.manual_seed(1)
        stock = runner.sampler(TABLE[3:4].clone(), runner.input_batch.sampling_metadata)
        assert expected == [stock.sampled_token_ids.tolist()] * 2

    def test_thinking_budgets_are_left_to_vllm(self) -> None:
        plain, thinking = (
            SamplingParams(temperature=0, thinking_token_budget=b) for b in (None, 2)
        )
        requests = [Request(plain, [1], [2]), Request(thinking, [1, 9], [2, 3])]
        runner = without_speculation()
        enter(runner, make_state("a", 0.0), make_state("b", 0.0))
        sampling = runner.input_batch.sampling_metadata
        sampling.thinking_budget_state_holder = budget_holder(requests, 0)
        runner.rejection_sampler = SpecVerifierThatFails()
        assert runner._sample(TABLE[3:5].clone(), None).sampled_token_ids.shape == (2, 1)

    def test_requests_with_and_without_a_seed_share_a_step(self) -> None:
        runner = without_speculation()
        states = by_name(make_state("a", seed=5), make_state("b"), make_state("c", 0.0))
        expected = seeded_step_by_step(as_request(states["a"]), TABLE[3:4], 5)
        enter(runner, *states.values())
        found = sample(runner, states, TABLE)
        assert found["a"] == expected
        assert found["c"] == [int(TABLE[3].argmax())]
        assert len(found["b"]) == 1
        rows = TABLE[3].expand(99, -1)
        assert len({sample(runner, states, rows)["b"][0] for _ in range(20)}) > 3


class SpecVerifierThatFails:
    """Stands where no step may arrive."""

    seeds_for, speculates = "none", False

    def __call__(self, *_: Any) -> None:
        raise AssertionError("a step without a seed arrived")


class PastTheRewindError(Exception):
    """The stock bookkeeping got past the lines that rewind."""


class DeviceGenerator(torch.Generator):
    """A generator with an offset, as those of a GPU or an NPU have; it notes how it is set."""

    offsets: list[int]

    def get_offset(self) -> int:
        return 100

    def set_offset(self, offset: int) -> None:
        self.offsets.append(offset)


class Batch:
    """The part of vLLM's input batch that rewinding looks at, and the line after it."""

    num_reqs = 3

    def __init__(self, *seeded: int, kind: type[torch.Generator] = torch.Generator) -> None:
        self.generators = {index: kind().manual_seed(index) for index in seeded}

    @property
    def req_ids(self) -> list[str]:
        raise PastTheRewindError


class TestBookkeeping:
    """vLLM rewinds generators of requests whose token is thrown away; ours were not drawn from."""

    ARGUMENTS = (None, None, None, None, 0)

    def runner(self, stock: type, batch: Batch, *, ours: bool = True) -> Any:
        runner = make_runner(stock) if ours else object.__new__(stock)
        mask = type("Mask", (), {"np": [False, True, True, False]})()
        vars(runner).update(input_batch=batch, discard_request_mask=mask)
        return runner

    def keep_books(self, runner: Any) -> None:
        with pytest.raises(PastTheRewindError):
            runner._bookkeeping_sync(*self.ARGUMENTS)

    @pytest.mark.parametrize("stock", STOCK)
    def test_generators_without_an_offset(self, stock: type) -> None:
        batch = Batch(0, 2)
        with pytest.raises(RuntimeError, match="offset"):
            self.runner(stock, batch, ours=False)._bookkeeping_sync(*self.ARGUMENTS)
        generators, before = batch.generators, dict(batch.generators)
        self.keep_books(self.runner(stock, batch))
        # There again, though the bookkeeping raised.
        assert batch.generators is generators
        assert batch.generators == before

    @pytest.mark.parametrize("stock", STOCK)
    def test_generators_with_an_offset(self, stock: type, monkeypatch: pytest.MonkeyPatch) -> None:
        offsets: list[int] = []
        monkeypatch.setattr(DeviceGenerator, "offsets", offsets, raising=False)
        batch = Batch(0, 2, kind=DeviceGenerator)
        self.keep_books(self.runner(stock, batch, ours=False))
        assert offsets == [96]  # a fixed 4 back, whatever was drawn
        self.keep_books(self.runner(stock, batch))
        assert offsets == [96]

    def test_what_it_returns_is_returned_and_generators_are_hidden_meanwhile(self) -> None:
        seen: list[Any] = []

        class Stock:
            def _bookkeeping_sync(self, *arguments: Any, **named: Any) -> Any:
                seen.append((arguments, named, dict(self.input_batch.generators)))  # type: ignore[attr-defined]
                return "the books"

        batch = Batch(0, 1)
        runner = self.runner(Stock, batch)
        assert runner._bookkeeping_sync(1, more=2) == "the books"
        assert seen == [((1,), {"more": 2}, {})]
        assert batch.generators.keys() == {0, 1}


@pytest.mark.parametrize("stock", STOCK)
def test_generators_are_not_drawn_from(stock: type) -> None:
    runner, state = make_runner(stock), make_state("a", seed=5)
    enter(runner, state)
    before = state.generator.get_state()
    sample(runner, {"a": state}, TABLE)
    sample(runner, {"a": state}, TABLE, {"a": [1, 2]})
    assert torch.equal(state.generator.get_state(), before)
