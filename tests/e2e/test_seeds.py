"""A request with a seed is answered as without speculation, token for token, in float32.

Its text is a function of the target and the seed: nothing that drafts, verifies, schedules or
shares the batch can change it. Asynchronous scheduling is in tests/ascend/test_matrix.py and, with
a server, in the soak.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from vllm import SamplingParams

from tests.e2e import sampled
from tests.e2e.drafts import count, watch
from tests.e2e.staggered import run_staggered
from tests.engines import assert_same
from tests.zoo import EVERY, KINDS, KINDS_OF_DRAFTS, MOST_DRAFTS, WITH_A_LOOP, drafting
from vllm_ascend_spec.ops.row_noise import RowNoise
from vllm_ascend_spec.verification import sampler
from vllm_ascend_spec.worker.seeded_sampling import SeededSamplingMixin

BLOCK = 32
# Each with 64 tokens; the other half by night.
NUM_PROMPTS = 64 if "TESTS_COMPILE_ALL" in os.environ else 32


@pytest.fixture(scope="module")
def expected(plain: Any, prompts: list[str]) -> list[list[int]]:
    answers = sampled.ask(plain, prompts)
    assert len({tuple(answer) for answer in answers}) == len(answers)
    return answers


@pytest.mark.core
@pytest.mark.parametrize("method", EVERY)
def test_every_method(
    method: str, make_engine: Any, prompts: list[str], expected: list[list[int]]
) -> None:
    llm = make_engine(EVERY[method], max_num_seqs=32)
    with watch(llm) as seen:
        assert_same(sampled.ask(llm, prompts[:NUM_PROMPTS]), expected[:NUM_PROMPTS])
    assert seen.acceptance.num_accepted_tokens > 0.05 * seen.acceptance.num_drafts


def numbers_of_drafts() -> Iterator[Any]:
    for method in EVERY:
        for k in (1, 7):
            by_day = (method, k) in (("eagle", 7), ("ngram", 1))
            marks = () if by_day else pytest.mark.nightly
            yield pytest.param(method, min(k, MOST_DRAFTS.get(method, k)), marks=marks)


@pytest.mark.parametrize(("method", "k"), list(numbers_of_drafts()))
def test_any_number_of_drafts(
    method: str, k: int, make_engine: Any, prompts: list[str], expected: list[list[int]]
) -> None:
    llm = make_engine({**EVERY[method], "num_speculative_tokens": k}, max_num_seqs=32)
    assert_same(sampled.ask(llm, prompts[:NUM_PROMPTS]), expected[:NUM_PROMPTS])


@pytest.mark.parametrize(("method", "how"), KINDS_OF_DRAFTS)
def test_beside_requests_without_a_seed(
    method: str, how: str, make_engine: Any, prompts: list[str], expected: list[list[int]]
) -> None:
    """A batch with greedy requests and ones that sample without a seed; drafts of both kinds."""
    llm = make_engine(drafting(method, how))
    others = [SamplingParams(temperature=t, max_tokens=20, ignore_eos=True) for t in (0.0, 1.0)]
    mine = sampled.requests(8)
    asked = [params for pair in zip(mine, others * 4, strict=True) for params in pair]
    texts = [text for pair in zip(prompts[:8], prompts[20:28], strict=True) for text in pair]
    outputs = llm.generate(texts, asked, use_tqdm=False)
    answers = [list(output.outputs[0].token_ids) for output in outputs[::2]]
    assert_same(answers, expected[:8])


def of_all(day: tuple[str, ...]) -> list[Any]:
    """Return all methods, those not in ``day`` by night: they take the same way."""
    return [pytest.param(name, marks=() if name in day else pytest.mark.nightly) for name in EVERY]


@pytest.mark.parametrize("method", of_all(("eagle",)))
def test_a_schedule_of_k(
    method: str, make_engine: Any, prompts: list[str], expected: list[list[int]]
) -> None:
    schedule = [[1, 1, 3], [2, 4, 1], [5, 8, 0]]
    llm = make_engine({**EVERY[method], "num_speculative_tokens_per_batch_size": schedule})
    for batch, number in ((1, 9), (3, 9), (8, 32)):
        assert_same(sampled.ask(llm, prompts[:number], batch), expected[:number])


@pytest.mark.parametrize("length", ["auto", "adaptive"])
@pytest.mark.parametrize("method", of_all(("eagle",)))
def test_a_k_that_is_chosen(
    method: str, length: str, make_engine: Any, prompts: list[str], expected: list[list[int]]
) -> None:
    llm = make_engine(EVERY[method], additional_config={"ascend_spec": {"draft_length": length}})
    assert_same(sampled.ask(llm, prompts[:32]), expected[:32])


@pytest.mark.parametrize("method", KINDS)
def test_limits_of_requests(
    method: str, make_engine: Any, prompts: list[str], expected: list[list[int]]
) -> None:
    llm = make_engine(EVERY[method])
    for limit in ("off", 1):
        asked = sampled.ask(llm, prompts[:32], extra_args={"speculation": limit})
        assert_same(asked, expected[:32])


@pytest.mark.parametrize("method", KINDS)
def test_preemption(
    method: str, make_engine: Any, prompts: list[str], expected: list[list[int]]
) -> None:
    llm = make_engine(
        EVERY[method], block_size=BLOCK, num_gpu_blocks_override=24, enable_prefix_caching=False
    )
    before = count(llm, "vllm:num_preemptions")
    assert_same(sampled.ask(llm, prompts[:32]), expected[:32])
    assert count(llm, "vllm:num_preemptions") > before


@pytest.mark.parametrize("method", KINDS)
def test_pieces_of_prompts_and_the_prefix_cache(
    method: str, make_engine: Any, prompts: list[str], expected: list[list[int]]
) -> None:
    chunks = {"max_num_batched_tokens": 48, "max_num_seqs": 4}
    llm = make_engine(EVERY[method], enable_prefix_caching=True, block_size=BLOCK, **chunks)
    for _ in range(2):
        assert_same(sampled.ask(llm, prompts[:32]), expected[:32])
    assert count(llm, "vllm:prefix_cache_hits") > 0


@pytest.mark.parametrize("method", KINDS)
def test_neighbours_that_come_and_go(
    method: str, make_engine: Any, prompts: list[str], expected: list[list[int]]
) -> None:
    """Beside requests that begin and end, some at the end of their context."""
    llm = make_engine(EVERY[method])
    mine = [(2, prompts[i], params) for i, params in enumerate(sampled.requests(4))]
    others = [
        (start, text, SamplingParams(temperature=t, max_tokens=length, ignore_eos=True))
        for start, text, t, length in (
            (0, prompts[40], 0.0, 5),
            (3, prompts[41], 1.0, 400),
            (9, {"prompt_token_ids": [7]}, 0.0, 9),
            (15, prompts[42], 0.0, 12),
        )
    ]
    answers = run_staggered(llm, [*mine, *others])
    assert_same(answers[: len(mine)], expected[: len(mine)])


@pytest.mark.parametrize("method", KINDS)
def test_the_end_of_the_context(method: str, make_engine: Any, prompts: list[str]) -> None:
    short = {"max_model_len": 160}
    plain = sampled.ask(make_engine(**short), prompts[:18], max_tokens=200)
    llm = make_engine(EVERY[method], **short)
    assert_same(sampled.ask(llm, prompts[:18], max_tokens=200), plain)


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(name, marks=() if name == "eagle" else pytest.mark.nightly)
        for name in WITH_A_LOOP
    ],
)
def test_vllms_own_draft_loop(
    method: str, make_engine: Any, prompts: list[str], expected: list[list[int]]
) -> None:
    llm = make_engine(EVERY[method], additional_config={"ascend_spec": {"draft_loop": "stock"}})
    assert_same(sampled.ask(llm, prompts[:32]), expected[:32])


@pytest.mark.nightly  # by day without seeds, in test_greedy_equality.py
@pytest.mark.parametrize("method", EVERY)
def test_compiled(method: str, make_engine: Any, prompts: list[str]) -> None:
    """torch.compile rounds differently than eager, so both sides are compiled here."""
    plain = sampled.ask(make_engine(enforce_eager=False), prompts[:32])
    llm = make_engine(EVERY[method], enforce_eager=False)
    assert_same(sampled.ask(llm, prompts[:32]), plain)


def test_the_block_rule_is_for_requests_without_a_seed(
    make_engine: Any, prompts: list[str], expected: list[list[int]]
) -> None:
    llm = make_engine(EVERY["eagle"], additional_config={"ascend_spec": {"verify_rule": "block"}})
    assert_same(sampled.ask(llm, prompts[:32]), expected[:32])


def test_a_drafter_that_is_always_wrong(
    make_engine: Any, prompts: list[str], expected: list[list[int]]
) -> None:
    wrong = {**EVERY["custom_class"], "model": "tests.e2e.wrong.Wrong"}
    assert_same(sampled.ask(make_engine(wrong), prompts[:32]), expected[:32])


def test_several_answers_to_a_prompt(plain: Any, make_engine: Any, prompts: list[str]) -> None:
    """Each is that of a seed of its own: the request's plus the answer's number."""
    asked = {"temperature": 1.0, "max_tokens": 24, "ignore_eos": True}
    found = []
    for llm in (plain, make_engine(EVERY["eagle"])):
        (output,) = llm.generate(prompts[0], SamplingParams(n=4, seed=9, **asked), use_tqdm=False)
        together = [list(answer.token_ids) for answer in output.outputs]
        alone = [SamplingParams(seed=9 + index, **asked) for index in range(4)]
        outputs = llm.generate([prompts[0]] * 4, alone, use_tqdm=False)
        assert_same(together, [list(output.outputs[0].token_ids) for output in outputs])
        found.append(together)
    assert_same(*found)
    assert len({tuple(answer) for answer in found[0]}) == 4


def test_logprobs(plain: Any, make_engine: Any, prompts: list[str]) -> None:
    params = sampled.requests(7, max_tokens=16, logprobs=2)
    found = []
    for llm in (plain, make_engine(EVERY["eagle"])):
        outputs = llm.generate(prompts[:7], params, use_tqdm=False)
        found.append([output.outputs[0] for output in outputs])
    for ours, theirs in zip(*found, strict=True):
        assert ours.token_ids == theirs.token_ids
        for one, other in zip(ours.logprobs, theirs.logprobs, strict=True):
            assert one.keys() == other.keys()
            for token, value in one.items():
                assert value.logprob == pytest.approx(other[token].logprob, abs=1e-4)
                assert value.rank == other[token].rank


@pytest.mark.parametrize(
    ("ours", "options"), [({"verify_rule": "seeded"}, {}), ({}, {"top_k": 20})]
)
def test_requests_without_a_seed_may_get_one(
    ours: dict[str, Any],
    options: dict[str, Any],
    make_engine: Any,
    prompts: list[str],
    expected: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No two such requests say the same, and those with a seed do."""
    llm = make_engine(EVERY["eagle"], additional_config={"ascend_spec": ours})
    params = SamplingParams(temperature=1.0, max_tokens=24, ignore_eos=True, **options)
    with watch(llm) as seen, monkeypatch.context() as patch:
        patch.delattr(sampler, "verify_sample")  # the other rules'
        outputs = llm.generate([prompts[0]] * 8, params, use_tqdm=False)
    assert len({tuple(output.outputs[0].token_ids) for output in outputs}) == 8
    assert seen.acceptance.num_accepted_tokens > 0.3 * seen.acceptance.num_drafts
    assert_same(sampled.ask(llm, prompts[:32]), expected[:32])


def by_step(noise: RowNoise, step: int) -> RowNoise:
    return noise._replace(positions=noise.positions * 0 + step)


def test_noise_that_follows_the_steps_would_be_noticed(
    make_engine: Any, prompts: list[str], expected: list[list[int]], monkeypatch: Any
) -> None:
    """Negative control: noise of the step instead of the position, as from a generator."""
    forward, steps = sampler.SpecVerifier.forward, []

    def wrong(self: Any, *args: Any) -> Any:
        steps.append(None)
        if self.noise is not None:
            self.noise = by_step(self.noise, len(steps))
        return forward(self, *args)

    monkeypatch.setattr(sampler.SpecVerifier, "forward", wrong)
    llm = make_engine(EVERY["ngram"])
    answers = sampled.ask(llm, prompts[:9], batch=1)
    assert sum(a != b for a, b in zip(answers, expected, strict=False)) > 6


def test_places_that_are_off_by_the_drafts_would_be_noticed(
    make_engine: Any, prompts: list[str], expected: list[list[int]], monkeypatch: Any
) -> None:
    """Negative control: positions counted from the end of the drafts."""
    forward = sampler.SpecVerifier.forward

    def wrong(self: Any, metadata: Any, *args: Any) -> Any:
        if self.noise is not None:
            ends = metadata.cu_num_draft_tokens
            self.noise = self.noise.after(ends.diff(prepend=ends.new_zeros(1)))
        return forward(self, metadata, *args)

    monkeypatch.setattr(sampler.SpecVerifier, "forward", wrong)
    llm = make_engine(EVERY["eagle"])
    answers = sampled.ask(llm, prompts[:9])
    assert sum(a != b for a, b in zip(answers, expected, strict=False)) > 6


def with_shifted_drafts(shift: int, sample: Any = SeededSamplingMixin._sample) -> Any:
    """Return a runner's ``_sample`` that lets drafts be sampled with other positions' noise."""

    def shifted(self: Any, *args: Any) -> Any:
        output = sample(self, *args)
        if self.noise_of_drafts is not None:
            self.noise_of_drafts = self.noise_of_drafts.after(shift)
        return output

    return shifted


def test_drafts_without_the_verifiers_noise_are_accepted_less(
    make_engine: Any, prompts: list[str], monkeypatch: Any
) -> None:
    """Negative control: the text is the same, and takes more steps."""
    llm = make_engine(drafting("eagle", "probabilistic"))
    params = [
        SamplingParams(temperature=1.0, seed=i, max_tokens=48, ignore_eos=True) for i in range(32)
    ]
    answers, lengths = [], []
    for shift in (0, 1 << 20):
        monkeypatch.setattr(SeededSamplingMixin, "_sample", with_shifted_drafts(shift))
        with watch(llm) as seen:
            outputs = llm.generate(prompts[:32], params, use_tqdm=False)
        answers.append([list(output.outputs[0].token_ids) for output in outputs])
        lengths.append(seen.acceptance.tokens_per_step)
    assert_same(*answers)
    assert lengths[0] > lengths[1] + 0.2
