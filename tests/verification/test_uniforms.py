"""Where the random numbers of a verification come from."""

from __future__ import annotations

import torch

from vllm_ascend_spec.verification import uniforms as module
from vllm_ascend_spec.verification.uniforms import Uniforms

CPU = torch.device("cpu")
LONGEST = 5


def draw_uniforms(counts: list[int], generators: dict[int, torch.Generator]) -> Uniforms:
    return module.draw_uniforms(counts, generators, CPU, max(LONGEST, *counts))


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_one_number_per_draft_and_one_per_request() -> None:
    uniforms = draw_uniforms([2, 0, 3], {})
    assert uniforms.accept.shape == (5,)
    assert uniforms.sample.shape == (3,)
    assert uniforms.accept.dtype == uniforms.sample.dtype == torch.float64


def test_numbers_are_uniform_in_the_half_open_interval() -> None:
    torch.manual_seed(0)
    uniforms = draw_uniforms([200] * 500, {})
    for numbers in uniforms:
        assert numbers.min() >= 0
        assert numbers.max() < 1
    # Chi-square over ten bins, nine degrees of freedom: 27.9 is passed once in a thousand.
    counts = uniforms.accept.histc(10, 0, 1)
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 27.9


def test_float64_numbers_have_more_than_24_bits() -> None:
    numbers = draw_uniforms([100], {}).accept
    assert (numbers != numbers.float().double()).any()


def test_seeded_request_draws_from_its_own_generator_in_order() -> None:
    uniforms = draw_uniforms([2, 3, 1], {1: seeded(5)})
    own = torch.rand(LONGEST + 1, dtype=torch.float64, generator=seeded(5))
    assert uniforms.sample[1] == own[0]
    assert torch.equal(uniforms.accept[2:5], own[1:4])


def test_seeded_request_draws_as_much_whatever_drafts_it_has() -> None:
    """It has none, some or padding by what runs beside it and what is in the prefix cache."""
    drawn = []
    for count in range(LONGEST + 1):
        generator = seeded(5)
        uniforms = draw_uniforms([1, count], {1: generator})
        drawn.append((uniforms.sample[1].item(), generator.get_state()))
        assert torch.equal(uniforms.accept[1:2], draw_uniforms([1], {0: seeded(5)}).accept[:count])
    for number, state in drawn:
        assert number == drawn[0][0]
        assert torch.equal(state, drawn[0][1])


def own_part(uniforms: Uniforms, start: int, count: int, request: int) -> list[float]:
    return [*uniforms.accept[start : start + count].tolist(), uniforms.sample[request].item()]


def test_seeded_request_draws_the_same_whatever_runs_beside_it() -> None:
    torch.manual_seed(1)
    alone = own_part(draw_uniforms([2], {0: seeded(9)}), 0, 2, 0)
    torch.manual_seed(2)
    batch = draw_uniforms([4, 2, 1], {0: seeded(3), 1: seeded(9), 2: seeded(4)})
    assert own_part(batch, 4, 2, 1) == alone


def test_equal_seeds_draw_equal_numbers_and_different_seeds_do_not() -> None:
    uniforms = draw_uniforms([2, 2, 2], {0: seeded(1), 1: seeded(1), 2: seeded(2)})
    first, second, third = (own_part(uniforms, 2 * i, 2, i) for i in range(3))
    assert first == second
    assert not set(first) & set(third)


def test_next_verification_draws_other_numbers() -> None:
    generators = {0: seeded(1)}
    first = draw_uniforms([2], generators)
    second = draw_uniforms([2], generators)
    assert not set(own_part(first, 0, 2, 0)) & set(own_part(second, 0, 2, 0))


def test_unseeded_requests_follow_torchs_global_seed() -> None:
    torch.manual_seed(3)
    first = draw_uniforms([3], {})
    torch.manual_seed(3)
    second = draw_uniforms([3], {})
    torch.manual_seed(4)
    third = draw_uniforms([3], {})
    assert torch.equal(first.accept, second.accept)
    assert not torch.equal(first.accept, third.accept)
