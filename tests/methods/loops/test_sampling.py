"""Sampled drafts: with a seed the verifier's own sample, without one the draft's distribution."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.methods.sampling import make_noise, make_sampling
from vllm_ascend_spec.methods.loops.sampling import DraftSampler, make_draft_sampler
from vllm_ascend_spec.ops import verify_seeded

VOCAB = 8
FILTERS: list[dict[str, Any]] = [{}, {"top_k": 2}, {"top_p": 0.5}, {"top_k": 5, "top_p": 0.7}]


def fixed_logits(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, VOCAB, generator=torch.Generator().manual_seed(3))


def draw(
    logits: torch.Tensor, temperature: list[float], noise: Any = None, **filters: Any
) -> list[int]:
    """Draw the first draft of a step."""
    return DraftSampler(make_sampling(temperature, **filters), noise).draw(logits)[0].tolist()


def verify(
    logits: torch.Tensor, drafts: list[int], seed: int, position: int, **filters: Any
) -> list[int]:
    """Return the tokens of one request at temperature 0.8 whose text continues at ``position``."""
    given = {name: torch.tensor([value]) for name, value in filters.items()}
    if "top_k" in given:
        given["top_k"] = given["top_k"].int()
    tokens, count = verify_seeded(
        logits,
        torch.tensor(drafts, dtype=torch.int32),
        torch.tensor([len(drafts)], dtype=torch.int32),
        len(drafts),
        temperature=torch.tensor([0.8]),
        **given,
        seeds=torch.tensor([seed]),
        positions=torch.tensor([position]),
    )
    return tokens[0, : int(count)].tolist()


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("seed", [0, 7, 2**63 - 1, -5, -(2**63)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_drafts_with_a_seed_are_what_the_verifier_samples_at_their_positions(
    seed: int, filters: dict[str, Any], dtype: torch.dtype
) -> None:
    steps = fixed_logits(40, 1).to(dtype)
    params = make_sampling([0.8], **{name: [value] for name, value in filters.items()})
    sampler = DraftSampler(params, make_noise([seed], [17]))
    drafts = []
    for offset, logits in enumerate(steps):
        tokens, probs = sampler.draw(logits)
        assert probs is None
        assert (tokens.dtype, tokens.shape) == (torch.int64, (1,))
        drafts += tokens.tolist()
        assert drafts[-1:] == verify(logits, [], seed, 17 + offset, **filters)
    assert len(set(drafts)) > 1
    # So a draft model that equals the target has all its drafts accepted.
    rows = torch.cat([steps[:, 0], steps[:1, 0]])
    assert verify(rows, drafts, seed, 17, **filters)[:-1] == drafts


def test_a_position_that_is_drafted_again_has_the_same_noise() -> None:
    logits = fixed_logits(1)
    for position in range(30):
        before, again = (
            DraftSampler(make_sampling([1.0]), make_noise([5], [first]))
            for first in (position, position + 1)
        )
        before.draw(fixed_logits(1) * 3)
        assert before.draw(logits)[0].tolist() == again.draw(logits)[0].tolist()


def test_a_draft_with_a_seed_does_not_depend_on_its_batch() -> None:
    logits = fixed_logits(4)
    for seed in range(30):
        alone = draw(logits[2:3], [0.8], make_noise([seed], [17]))
        for unseeded in (None, [True, False, False, False], [True, True, False, True]):
            torch.manual_seed(100 * seed)
            noise = make_noise([0, 0, seed, seed + 1], [4, 9, 17, 17], unseeded)
            assert draw(logits, [1.0, 0.0, 0.8, 2.0], noise)[2:3] == alone


def test_nothing_is_drawn_from_a_shared_generator_for_seeds() -> None:
    """Drafts are also made for tokens that are thrown away."""
    before = torch.get_rng_state()
    draw(fixed_logits(3), [1.0, 0.0, 0.5], make_noise([5, 0, 6], [3, 3, 3]))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("noise", [None, make_noise([0, 4], [3, 3], [True, False])])
def test_the_engines_generator_repeats_drafts_without_a_seed(noise: Any) -> None:
    """It starts from the engine's seed; vLLM reproduces whole runs that way."""
    logits = fixed_logits(2) * 0

    def drawn(seed: int) -> list[int]:
        torch.manual_seed(seed)
        return [draw(logits, [1.0, 1.0], noise)[0] for _ in range(20)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def chi_square(observed: list[int], probs: torch.Tensor) -> float:
    counts = torch.bincount(torch.tensor(observed), minlength=VOCAB).double()
    expected = probs.double() * len(observed)
    assert bool((counts[expected == 0] == 0).all())
    return float(((counts - expected) ** 2 / expected)[expected > 0].sum())


# Seven degrees of freedom: passed once in ten thousand draws of the right distribution.
LIMIT = 29.9


@pytest.mark.parametrize("beside_seeds", [False, True])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.8])
def test_drafts_without_a_seed_have_the_reported_distribution(
    temperature: float, beside_seeds: bool
) -> None:
    torch.manual_seed(11)
    count, noise = 20_000, None
    logits = fixed_logits(1).expand(count + 1, -1)
    if beside_seeds:
        noise = make_noise([9] * (count + 1), [4] * (count + 1), [True] * count + [False])
    sampler = DraftSampler(make_sampling([temperature] * (count + 1)), noise)
    expected = (logits[0].double() / temperature).softmax(-1)
    for _ in range(2):
        tokens, probs = sampler.draw(logits)
        drafts = tokens[:count].tolist()
        assert probs is not None
        torch.testing.assert_close(probs[0].double(), expected, atol=1e-6, rtol=0)
        assert chi_square(drafts, expected) < LIMIT
        # The check has teeth: the same counts do not fit a slightly different distribution.
        assert chi_square(drafts, (logits[0].double() / temperature * 1.2).softmax(-1)) > LIMIT


@pytest.mark.parametrize("filters", [{}, {"top_k": 4}])
@pytest.mark.parametrize("vary", ["position", "seed"])
def test_drafts_with_seeds_have_the_distribution_over_positions_and_over_seeds(
    vary: str, filters: dict[str, int]
) -> None:
    count = 4_000
    numbers, same = list(range(count)), [7] * count
    noise = make_noise(same, numbers) if vary == "position" else make_noise(numbers, same)
    logits = fixed_logits(1).expand(count, -1)
    given = {name: [value] * count for name, value in filters.items()}
    drafts = draw(logits, [1.0] * count, noise, **given)
    kept = logits[0].topk(filters.get("top_k", VOCAB))
    expected = torch.zeros(VOCAB).scatter(0, kept.indices, kept.values.softmax(-1))
    assert chi_square(drafts, expected) < LIMIT


def test_neighbouring_positions_of_a_seed_are_independent() -> None:
    count = 6_000
    noise = make_noise([1] * count, [*range(count)])
    drafts = draw(torch.zeros(count, 2), [1.0] * count, noise)
    equal = sum(a == b for a, b in itertools.pairwise(drafts))
    # Standard deviation 39: four of them.
    assert abs(equal - count / 2) < 160


@pytest.mark.parametrize(
    "noise",
    [
        None,
        make_noise([0, 0, 1], [1, 2, 3]),
        make_noise([0, 1, 0], [1, 2, 3], [False, True, False]),
    ],
)
def test_greedy_requests_take_the_argmax_beside_sampled_ones(noise: Any) -> None:
    logits = fixed_logits(3)
    for _ in range(10):
        drafts = draw(logits, [0.0, 5.0, 0.0], noise)
        assert drafts[0] == logits[0].argmax()
        assert drafts[2] == logits[2].argmax()


def test_distributions_are_handed_over_for_requests_without_a_seed_only() -> None:
    logits, params = fixed_logits(3), make_sampling([0.0, 1.0, 0.3])
    seeds, starts = [0, 3, 4], [1, 2, 3]
    assert DraftSampler(params, make_noise(seeds, starts)).draw(logits)[1] is None
    one = make_noise(seeds, starts, [False, False, True])
    for noise in (None, one):
        probs = DraftSampler(params, noise).draw(logits)[1]
        assert probs is not None
        torch.testing.assert_close(probs[2], (logits[2] / 0.3).softmax(-1))


@pytest.mark.parametrize("noise", [None, make_noise([0] * 3, [1, 2, 3], [False, True, False])])
def test_shapes_dtypes_and_inputs(noise: Any) -> None:
    logits = fixed_logits(3).to(torch.bfloat16)
    before = logits.clone()
    drafts, probs = DraftSampler(make_sampling([0.0, 1.0, 0.3]), noise).draw(logits)
    assert drafts.dtype == torch.int64
    assert drafts.shape == (3,)
    assert probs is not None
    assert probs.dtype == torch.float32
    assert probs.shape == (3, VOCAB)
    torch.testing.assert_close(probs.sum(-1), torch.ones(3))
    assert torch.equal(logits, before)


def test_rows_of_another_layout_are_read_right() -> None:
    """A place of all requests' rows, as of a pass that gives all drafts."""
    logits, noise = fixed_logits(3, 4), make_noise([5, 6, 7], [1, 2, 3])
    strided = draw(logits[:, 2], [1.0] * 3, noise)
    assert strided == draw(logits[:, 2].contiguous(), [1.0] * 3, noise)


@pytest.mark.parametrize("seeded", [False, True])
def test_impossible_tokens_are_never_drafted(seeded: bool) -> None:
    logits = torch.full((2_000, VOCAB), float("-inf"))
    logits[:, 2] = 0.0
    logits[:, 5] = 1.0
    noise = make_noise([*range(2_000)], [0] * 2_000) if seeded else None
    assert set(draw(logits, [1.0] * 2_000, noise)) == {2, 5}


def make_runner(noise: Any, grammars: list[Any]) -> Any:
    """Return the part of a runner that drafts are sampled by."""
    names = [str(index) for index in range(len(grammars))]
    params = [SimpleNamespace(structured_outputs=grammar) for grammar in grammars]
    return SimpleNamespace(
        requests={
            n: SimpleNamespace(sampling_params=one) for n, one in zip(names, params, strict=True)
        },
        input_batch=SimpleNamespace(req_ids=names),
        noise_of_drafts=noise,
    )


def test_drafts_of_a_grammar_are_the_most_likely_and_say_so() -> None:
    logits, params = fixed_logits(3), make_sampling([5.0] * 3)
    sampler = make_draft_sampler(make_runner(None, [None, "json", None]), params)
    free = make_draft_sampler(make_runner(None, [None] * 3), params)
    assert sampler is not None
    assert free is not None
    for _ in range(5):
        (tokens, probs), (_, laws) = sampler.draw(logits), free.draw(logits)
        assert probs is not None
        assert laws is not None
        assert tokens[1] == logits[1].argmax()
        assert probs[1].tolist() == [float(i == tokens[1]) for i in range(VOCAB)]
        assert torch.equal(probs[[0, 2]], laws[[0, 2]])


@pytest.mark.parametrize("unseeded", [None, [False, False, True]])
def test_drafts_of_a_grammar_are_sampled_for_a_seed(unseeded: list[bool] | None) -> None:
    """Its tokens are the target's samples, whatever is cut off its drafts."""
    logits, params = fixed_logits(3), make_sampling([5.0] * 3)
    noise = make_noise([5, 6, 7], [1, 2, 3], unseeded)
    bound = make_draft_sampler(make_runner(noise, ["json", None, "json"]), params)
    assert bound is not None
    free, drafts = DraftSampler(params, noise), []
    for _ in range(20):
        tokens, probs = bound.draw(logits)
        assert tokens[:2].tolist() == free.draw(logits)[0][:2].tolist()
        drafts.append(int(tokens[0]))
        if unseeded is not None:
            assert probs is not None
            assert tokens[2] == logits[2].argmax()
            assert float(probs[2, tokens[2]]) == 1.0
    assert len(set(drafts)) > 1


def test_there_is_no_sampler_where_all_are_greedy() -> None:
    assert make_draft_sampler(make_runner(None, [None]), make_sampling([0.0])) is None


@pytest.mark.parametrize("spoilt", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", [slice(None), slice(3, 4)])
@pytest.mark.parametrize(
    "noise",
    [
        None,
        make_noise([5] * 4, [1] * 4),
        make_noise([5] * 4, [1] * 4, [False, True, False, False]),
    ],
)
def test_logits_of_nan_give_tokens_of_the_vocabulary_and_say_so(
    spoilt: float, where: slice, noise: Any
) -> None:
    logits = fixed_logits(4)
    logits[:, where] = spoilt
    drafts, probs = DraftSampler(make_sampling([0.0, 1.0, 0.3, 2.0]), noise).draw(logits)
    assert bool(((drafts >= 0) & (drafts < VOCAB)).all())
    if noise is None or noise.unseeded is not None:
        assert probs is not None
        # All of the row, so that the verifier need not know which token came of it.
        assert bool(probs.isnan().all())
