"""Sampled drafts: seeded ones repeat, and all have the draft's distribution."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from vllm_ascend_spec.methods.loops.sampling import DraftSampler, draft_seed

VOCAB = 8


def sampling(temperature: list[float], seeds: dict[int, int] | None = None) -> Any:
    """Return the part of vLLM's sampling metadata that drafting reads."""
    generators = {i: torch.Generator().manual_seed(seed) for i, seed in (seeds or {}).items()}
    return SimpleNamespace(temperature=torch.tensor(temperature), generators=generators)


def fixed_logits(num_reqs: int) -> torch.Tensor:
    return torch.randn(num_reqs, VOCAB, generator=torch.Generator().manual_seed(3))


def draw(logits: torch.Tensor, metadata: Any, positions: list[int]) -> list[int]:
    """Draw the first draft of steps that start at ``positions``."""
    return DraftSampler(metadata, torch.tensor(positions)).draw(logits)[0].tolist()


def test_seeded_drafts_repeat() -> None:
    logits = fixed_logits(1).expand(50, -1)
    metadata = sampling([1.0] * 50, dict.fromkeys(range(50), 5))
    first = draw(logits, metadata, list(range(50)))
    torch.manual_seed(99)
    assert draw(logits, metadata, list(range(50))) == first
    assert len(set(first)) > 1


def test_seeded_draft_does_not_depend_on_its_batch() -> None:
    logits = fixed_logits(4)
    for seed in range(20):
        torch.manual_seed(seed)
        alone = draw(logits[2:3], sampling([0.8], {0: seed}), [17])
        batch = draw(logits, sampling([1.0, 0.0, 0.8, 2.0], {2: seed, 3: seed + 1}), [4, 9, 17, 17])
        assert batch[2:3] == alone


def test_drafting_leaves_the_requests_generator_alone() -> None:
    # It belongs to the target's draws; drafts are also made for tokens that are thrown away.
    metadata = sampling([1.0], {0: 5})
    before = metadata.generators[0].get_state()
    draw(fixed_logits(1), metadata, [3])
    assert torch.equal(metadata.generators[0].get_state(), before)


def test_seeded_draft_depends_on_the_seed_and_not_on_what_was_drawn_since() -> None:
    metadata = sampling([1.0], {0: 5})
    before = draw(fixed_logits(1), metadata, [3])
    torch.rand(100, generator=metadata.generators[0])
    assert draw(fixed_logits(1), metadata, [3]) == before


def test_position_drafted_again_gets_other_noise() -> None:
    """The second draft of a step at 4 and the first of one at 5 are for the same position."""
    metadata = sampling([1.0], {0: 5})
    zeros = torch.zeros(1, VOCAB)
    before, again = (DraftSampler(metadata, torch.tensor([first])) for first in (4, 5))
    before._noise_like(zeros)
    assert not torch.equal(before._noise_like(zeros), again._noise_like(zeros))


def test_noise_depends_on_the_request_and_the_place_alone() -> None:
    zeros = torch.zeros(3, VOCAB)
    many = DraftSampler(sampling([1.0] * 3, {1: 5, 2: 6}), torch.tensor([9, 4, 4]))
    alone = DraftSampler(sampling([1.0], {0: 5}), torch.tensor([4]))
    for _ in range(3):
        assert torch.equal(many._noise_like(zeros)[1], alone._noise_like(zeros[:1])[0])


def test_seeds_of_neighbours_differ() -> None:
    seeds = [draft_seed(*place) for place in itertools.product(range(40), range(40), range(8))]
    assert len(set(seeds)) == len(seeds)


@pytest.mark.parametrize("seed", [0, 1, 7, 2**32 - 1, 2**63 - 1])
def test_no_noise_comes_twice_in_a_request(seed: int) -> None:
    """PyTorch's generator on a CPU starts from the low 32 bits of its seed alone."""
    places = itertools.product([*range(2_000), *range(2**20, 2**20 + 500)], range(16))
    low = [draft_seed(seed, *place) & 0xFFFFFFFF for place in places]
    assert len(set(low)) == len(low)


def test_generators_on_a_cpu_use_the_low_32_bits() -> None:
    """When this fails the seeds need no care for them."""
    low, both = (torch.rand(4, generator=torch.Generator().manual_seed(s)) for s in (3, 2**32 + 3))
    assert torch.equal(low, both)


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**63 - 1, 2**64 - 1, -5])
def test_every_seed_is_one_that_torch_takes(seed: int) -> None:
    for first in (0, 1, 131071):
        torch.Generator().manual_seed(draft_seed(seed, first, 63))


def chi_square(observed: list[int], probs: torch.Tensor) -> float:
    counts = torch.bincount(torch.tensor(observed), minlength=VOCAB).double()
    expected = probs.double() * len(observed)
    return float(((counts - expected) ** 2 / expected).sum())


# Seven degrees of freedom: passed once in ten thousand draws of the right distribution.
LIMIT = 29.9


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.8])
def test_drafts_without_a_seed_have_the_reported_distribution(temperature: float) -> None:
    torch.manual_seed(11)
    logits = fixed_logits(1).expand(20_000, -1)
    metadata = sampling([temperature] * 20_000)
    sampler = DraftSampler(metadata, torch.zeros(20_000, dtype=torch.int64))
    drafts, probs = sampler.draw(logits)
    expected = (logits[0].double() / temperature).softmax(-1)
    torch.testing.assert_close(probs[0].double(), expected, atol=1e-6, rtol=0)
    assert chi_square(drafts.tolist(), expected) < LIMIT
    # The check has teeth: the same counts do not fit a slightly different distribution.
    assert chi_square(drafts.tolist(), (logits[0].double() / temperature * 1.2).softmax(-1)) > LIMIT


@pytest.mark.parametrize("vary", ["position", "seed"])
def test_seeded_drafts_have_the_distribution_over_positions_and_over_seeds(vary: str) -> None:
    count = 4_000
    numbers = list(range(count))
    seeds = dict.fromkeys(numbers, 42) if vary == "position" else dict(enumerate(numbers))
    positions = numbers if vary == "position" else [7] * count
    logits = fixed_logits(1).expand(count, -1)
    drafts = draw(logits, sampling([1.0] * count, seeds), positions)
    assert chi_square(drafts, logits[0].softmax(-1)) < LIMIT


def test_neighbouring_positions_of_a_seed_are_independent() -> None:
    count = 6_000
    logits = torch.zeros(count, 2)
    drafts = draw(logits, sampling([1.0] * count, dict.fromkeys(range(count), 1)), [*range(count)])
    equal = sum(a == b for a, b in itertools.pairwise(drafts))
    # Standard deviation 39: four of them.
    assert abs(equal - count / 2) < 160


def test_greedy_requests_take_the_argmax_beside_sampled_ones() -> None:
    logits = fixed_logits(3)
    for _ in range(10):
        drafts = draw(logits, sampling([0.0, 5.0, 0.0], {2: 1}), [1, 2, 3])
        assert drafts[0] == logits[0].argmax()
        assert drafts[2] == logits[2].argmax()


def test_shapes_dtypes_and_inputs() -> None:
    logits = fixed_logits(3).to(torch.bfloat16)
    before = logits.clone()
    metadata = sampling([0.0, 1.0, 0.3])
    drafts, probs = DraftSampler(metadata, torch.tensor([1, 2, 3])).draw(logits)
    assert drafts.dtype == torch.int64
    assert drafts.shape == (3,)
    assert probs.dtype == torch.float32
    assert probs.shape == (3, VOCAB)
    torch.testing.assert_close(probs.sum(-1), torch.ones(3))
    assert torch.equal(logits, before)


def test_impossible_tokens_are_never_drafted() -> None:
    logits = torch.full((2_000, VOCAB), float("-inf"))
    logits[:, 2] = 0.0
    logits[:, 5] = 1.0
    assert set(draw(logits, sampling([1.0] * 2_000), [0] * 2_000)) == {2, 5}


def test_certain_drafts_are_the_most_likely_and_say_so() -> None:
    logits = fixed_logits(3)
    sampler = DraftSampler(sampling([5.0] * 3, {1: 1}), torch.tensor([1, 2, 3]), [1])
    free = DraftSampler(sampling([5.0] * 3, {1: 1}), torch.tensor([1, 2, 3]))
    for _ in range(5):
        (tokens, probs), (_, laws) = sampler.draw(logits), free.draw(logits)
        assert tokens[1] == logits[1].argmax()
        assert probs[1].tolist() == [float(i == tokens[1]) for i in range(VOCAB)]
        assert torch.equal(probs[[0, 2]], laws[[0, 2]])


@pytest.mark.parametrize("spoilt", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", [slice(None), slice(3, 4)])
def test_logits_of_nan_give_tokens_of_the_vocabulary_and_say_so(
    spoilt: float, where: slice
) -> None:
    logits = fixed_logits(4)
    logits[:, where] = spoilt
    metadata = sampling([0.0, 1.0, 0.3, 2.0], {2: 5})
    drafts, probs = DraftSampler(metadata, torch.tensor([1, 2, 3, 4])).draw(logits)
    assert bool(((drafts >= 0) & (drafts < VOCAB)).all())
    # All of the row, so that the verifier need not know which token came of it.
    assert bool(probs.isnan().all())
