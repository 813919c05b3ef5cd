"""``verify_seeded``: its noise, its law, and that drafts cannot change what it yields."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.ops.batches import backends_on_cpu, spoil_unread_rows
from tests.ops.cases import KINDS, parity_cases
from tests.ops.seeded import assert_as_the_reference, seeded_case
from vllm_ascend_spec.ops import verify_greedy
from vllm_ascend_spec.ops.verify_seeded import OP, verify_seeded
from vllm_ascend_spec.ops.verify_seeded.noise import BLOCK, noise, philox

BACKENDS = backends_on_cpu(OP)
OTHERS = backends_on_cpu(OP, without=("reference",))
# In standard deviations of a count; by chance once in 30,000, and the seeds are fixed.
BOUND = 5.0
# Counter, key and result in kat_vectors of the authors' Random123 1.14.
VECTORS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), VECTORS)
def test_the_generator_gives_its_authors_numbers(
    counter: tuple[int, ...], key: tuple[int, ...], words: tuple[int, ...]
) -> None:
    found = philox(tuple(map(torch.tensor, counter)), tuple(map(torch.tensor, key)))
    assert tuple(map(int, found)) == words


def numbers(count: int, vocab_size: int, seed: int = 0) -> torch.Tensor:
    """Return the noise of many seeds at one position, float64 [count, vocab_size]."""
    seeds = torch.arange(count) + seed
    # A thousand at a time stay in the processor's cache.
    pieces = [noise(piece, torch.full_like(piece, 7), vocab_size) for piece in seeds.split(1000)]
    return torch.cat(pieces)


@pytest.mark.parametrize("vocab_size", [3, BLOCK, BLOCK + 50])
def test_noise_is_exponential_whatever_the_block(vocab_size: int) -> None:
    drawn = numbers(20_000, vocab_size)
    count = drawn.shape[0]
    for limit in (0.01, 0.3, 1.0, 3.0):
        expected = 1 - torch.tensor(-limit).exp().double()
        share = (drawn < limit).double().mean(dim=0)
        spread = (expected * (1 - expected) / count).sqrt()
        assert ((share - expected).abs() < BOUND * spread).all()


def test_noise_of_tokens_is_independent() -> None:
    """Of neighbours, of one call of the generator, of a block's ends, and of two blocks."""
    below = numbers(100_000, 2 * BLOCK) < 0.5
    chance = 1 - torch.tensor(-0.5).exp().double()
    spread = (chance**2 * (1 - chance**2) / below.shape[0]).sqrt()
    for one, other in ((0, 1), (0, 32), (5, 101), (0, 127), (127, 128), (3, 131)):
        both = (below[:, one] & below[:, other]).double().mean()
        assert abs(both - chance**2) < BOUND * spread


def test_noise_belongs_to_seed_position_and_token() -> None:
    seeds, positions = torch.tensor([5, 5, 6, 5]), torch.tensor([9, 10, 9, 2**32 + 9])
    each = noise(seeds, positions, 300)
    for one, other in itertools.combinations(range(4), 2):
        assert not torch.isclose(each[one], each[other]).any()
    # A larger vocabulary has the same numbers and more.
    assert torch.equal(noise(seeds, positions, 1000)[:, :300], each)


PROBS = torch.tensor([0.5, 0.1, 0.4], dtype=torch.float64)
Places = Callable[[torch.Tensor], torch.Tensor]


def joint_deviation(backend: str, seeds: torch.Tensor, positions: list[torch.Tensor]) -> float:
    """Return the largest deviation of the counts of three tokens from the product of PROBS."""
    count = seeds.shape[0]
    none = torch.zeros(0, dtype=torch.int32)

    def sample(own: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        size = own.shape[0]
        tokens, _ = verify_seeded(
            PROBS.log().float().expand(size, -1).contiguous(),
            none,
            torch.zeros(size, dtype=torch.int32),
            0,
            temperature=torch.ones(size),
            seeds=own,
            positions=place,
            backend=backend,
        )
        return tokens[:, 0].long()

    # The reference makes whole blocks of noise, which then stay in the processor's cache.
    piece = 1000 if backend == "reference" else count
    samples = [
        torch.cat(list(map(sample, seeds.split(piece), place.split(piece)))) for place in positions
    ]
    cells = torch.bincount((samples[0] * 3 + samples[1]) * 3 + samples[2], minlength=27)
    chances = torch.einsum("a,b,c->abc", PROBS, PROBS, PROBS).flatten()
    spread = (count * chances * (1 - chances)).sqrt()
    return float(((cells - count * chances).abs() / spread).max())


@pytest.mark.parametrize("backend", BACKENDS)
def test_three_tokens_together_have_the_targets_law(backend: str) -> None:
    seeds = torch.arange(100_000 if backend == "reference" else 1_000_000)
    places = [torch.full_like(seeds, 40 + i) for i in range(3)]
    assert joint_deviation(backend, seeds, places) < BOUND


@pytest.mark.parametrize(
    "mistake",
    [lambda i: 40, lambda i: 40 + i // 2],
    ids=["noise of the step", "noise of two positions"],
)
def test_wrong_positions_exceed_the_bound(mistake: Callable[[int], int]) -> None:
    seeds = torch.arange(20_000)
    places = [torch.full_like(seeds, mistake(i)) for i in range(3)]
    assert joint_deviation("reference", seeds, places) > BOUND


def coupled(p: torch.Tensor, q: torch.Tensor, draft_seeds: torch.Tensor) -> torch.Tensor:
    """Return whether drafts of q are accepted by p, for seeds of 0 and up."""
    count = draft_seeds.shape[0]
    seeds, positions = torch.arange(count), torch.full((count,), 3)
    one = {"temperature": torch.ones(count), "positions": positions}
    none = (torch.zeros(0, dtype=torch.int32), torch.zeros(count, dtype=torch.int32), 0)
    drafts = verify_seeded(q.log().expand(count, -1), *none, seeds=draft_seeds, **one)[0][:, 0]
    rows = p.log().expand(2 * count, -1)
    ends = torch.arange(1, count + 1, dtype=torch.int32)
    return verify_seeded(rows, drafts, ends, 1, seeds=seeds, **one)[1] == 2


def test_drafts_of_the_same_noise_are_accepted_as_often_as_proved() -> None:
    generator = torch.Generator().manual_seed(1)
    for sharpness in (0.5, 2.0):
        p, q = (
            torch.softmax(sharpness * torch.randn(20, generator=generator), 0) for _ in range(2)
        )
        distance = float((p - q).abs().sum() / 2)
        together = coupled(p, q, torch.arange(100_000)).double().mean()
        assert together > (1 - distance) / (1 + distance) - 0.005
        # Noise that the drafter alone sees is worth no more than chance.
        apart = coupled(p, q, torch.arange(100_000) + 10**9).double().mean()
        assert abs(apart - float((p * q).sum())) < 0.01


@pytest.mark.parametrize("backend", BACKENDS)
def test_drafts_decide_only_how_many_tokens_there_are(backend: str) -> None:
    for index, case in enumerate(parity_cases(60, seed=11, max_vocab=600)):
        arguments = seeded_case(case, index)
        tokens, counts = verify_seeded(**arguments, backend=backend)
        # Every row by itself, at its own position.
        request = torch.repeat_interleave(
            torch.diff(arguments["cu_num_draft_tokens"], prepend=torch.zeros(1).int()) + 1
        )
        place = torch.cat([torch.arange(int(n)) for n in torch.bincount(request)])
        none = (torch.zeros(0, dtype=torch.int32), torch.zeros_like(request, dtype=torch.int32), 0)
        per_row: dict[str, Any] = {
            name: None if arguments.get(name) is None else arguments[name][request]
            for name in ("temperature", "top_k", "top_p", "min_p", "seeds")
        }
        positions = arguments["positions"][request] + place
        alone = verify_seeded(
            arguments["logits"], *none, **per_row, positions=positions, backend=backend
        )[0][:, 0]
        for own in range(counts.shape[0]):
            wanted = alone[request == own][: int(counts[own])]
            assert torch.equal(tokens[own, : int(counts[own])], wanted)
            assert (tokens[own, int(counts[own]) :] == -1).all()
        spoilt = spoil_unread_rows(arguments, counts, float("nan"))
        again, _ = verify_seeded(**{**arguments, "logits": spoilt}, backend=backend)
        assert torch.equal(again, tokens)


@pytest.mark.parametrize("backend", OTHERS)
@pytest.mark.parametrize("kind", [None, *KINDS[1:]])
def test_backends_equal_the_reference(backend: str, kind: str | None) -> None:
    fixed = {} if kind is None else {"kind": kind}
    cases = list(parity_cases(300 if kind is None else 80, seed=12, **fixed))
    ties = sum(
        assert_as_the_reference(seeded_case(case, i), backend) for i, case in enumerate(cases)
    )
    assert ties <= 0.01 * len(cases)


@pytest.mark.parametrize("backend", OTHERS)
def test_large_vocabularies_equal_the_reference(backend: str) -> None:
    cases = parity_cases(6, seed=13, vocab_size=151936, max_requests=3, max_drafts=3)
    for index, case in enumerate(cases):
        assert_as_the_reference(seeded_case(case, index), backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_greedy_requests_are_verified_greedily(backend: str) -> None:
    for index, case in enumerate(parity_cases(20, seed=14, max_vocab=300)):
        arguments = seeded_case(case, index)
        arguments["temperature"] = torch.zeros_like(arguments["temperature"])
        names = ("logits", "draft_token_ids", "cu_num_draft_tokens", "max_draft_len")
        expected = verify_greedy(*(arguments[name] for name in names), backend="reference")
        for got, wanted in zip(verify_seeded(**arguments, backend=backend), expected, strict=True):
            assert torch.equal(got, wanted)


def test_arguments_are_checked() -> None:
    arguments = seeded_case(next(parity_cases(1, seed=15)), 0)
    for name in ("seeds", "positions"):
        with pytest.raises(ValueError, match=f"{name}: dtype"):
            verify_seeded(**{**arguments, name: arguments[name].int()})
    with pytest.raises(ValueError, match=r"temperature: -1\.0 is not"):
        verify_seeded(**{**arguments, "temperature": arguments["temperature"] * 0 - 1})
