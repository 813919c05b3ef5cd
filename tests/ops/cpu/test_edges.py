"""Empty batches, rows far apart, and numbers at the ends of what floats can say."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.ops.batches import RULES, Arguments, float64, int32
from tests.ops.cpu.marks import requires_library
from tests.ops.parity import assert_right, judge
from vllm_ascend_spec.ops import grammar_mask, verify_greedy, verify_sample

NEGATIVE_INFINITY = float("-inf")

pytestmark = requires_library


def bonus_rows(logits: torch.Tensor, **parameters: torch.Tensor) -> Arguments:
    """Return a case without drafts: each row of ``logits`` is sampled, at a uniform of 0.5."""
    num_reqs = logits.shape[0]
    return {
        "logits": logits,
        "draft_token_ids": int32([]),
        "cu_num_draft_tokens": torch.zeros(num_reqs, dtype=torch.int32),
        "max_draft_len": 0,
        "temperature": torch.ones(num_reqs),
        "accept_uniform": float64([]),
        "sample_uniform": torch.full((num_reqs,), 0.5, dtype=torch.float64),
        **parameters,
    }


def sampled(case: Arguments) -> list[int]:
    """Return the tokens of a case without drafts, which must be the reference's."""
    tokens, counts = verify_sample(**case, backend="cpu")
    assert counts.tolist() == [1] * counts.shape[0]
    assert_right([judge(case, (tokens, counts))], most_ties=1)
    return tokens[:, 0].tolist()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("with_draft_probs", [False, True])
def test_batch_without_requests_gives_empty_results(rule: str, with_draft_probs: bool) -> None:
    case = bonus_rows(torch.empty(0, 7))
    case |= {"max_draft_len": 3, "top_k": int32([]), "top_p": torch.empty(0), "rule": rule}
    if with_draft_probs:
        case["draft_probs"] = torch.empty(0, 7)
    tokens, counts = verify_sample(**case, backend="cpu")
    assert (tokens.shape, counts.shape) == ((0, 4), (0,))
    tokens, counts = verify_greedy(case["logits"], int32([]), int32([]), 3, backend="cpu")
    assert (tokens.shape, counts.shape) == ((0, 4), (0,))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("with_draft_probs", [False, True])
def test_batch_without_drafts_samples_every_row(rule: str, with_draft_probs: bool) -> None:
    case = bonus_rows(100 * torch.eye(5)) | {"max_draft_len": 2, "rule": rule}
    if with_draft_probs:
        case["draft_probs"] = torch.empty(0, 5)
    tokens, counts = verify_sample(**case, backend="cpu")
    assert tokens.tolist() == [[i, -1, -1] for i in range(5)]
    assert counts.tolist() == [1] * 5


def test_mask_of_no_rows_changes_nothing() -> None:
    logits = torch.zeros(2, 40)
    grammar_mask(logits, torch.empty(0, 2, dtype=torch.int32), int32([]), backend="cpu")
    grammar_mask(logits, torch.zeros(2, 2, dtype=torch.int32), int32([-1, -1]), backend="cpu")
    assert torch.equal(logits, torch.zeros(2, 40))


def test_rows_may_lie_more_than_2_to_the_31_elements_apart(tmp_path: Path) -> None:
    stride, vocab = 2**31, 2500
    # A file with a hole: nothing but what is written takes space.
    data = torch.from_file(
        str(tmp_path / "logits"), shared=True, size=stride + vocab, dtype=torch.bfloat16
    )
    logits = data.as_strided((2, vocab), (stride, 1))
    logits[0, 3] = logits[1, 2400] = 50.0
    assert verify_greedy(logits, int32([3]), int32([1]), 1, backend="cpu")[0].tolist() == [
        [3, 2400]
    ]
    assert sampled(bonus_rows(logits, top_p=torch.tensor([0.9, 1.0]))) == [3, 2400]
    grammar_mask(logits, torch.ones(1, 79, dtype=torch.int32), int32([1]), backend="cpu")
    assert logits[1].isfinite().nonzero()[:, 0].tolist() == list(range(0, vocab, 32))
    assert bool(logits[0].isfinite().all())


@pytest.mark.parametrize("gap", [50.0, 90.0, 100.0, 1000.0])
@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53])
def test_token_at_minus_infinity_is_never_drawn(gap: float, uniform: float) -> None:
    """A block far below the maximum has a mass that float32 can say, its tokens no weight."""
    logits = torch.zeros(2, 3 * 2048)
    logits[:, 2048:4096] = gap
    logits[:, ::2] = NEGATIVE_INFINITY
    case = bonus_rows(logits, sample_uniform=float64([uniform] * 2))
    for filters in ({}, {"top_k": int32([5000, 3])}, {"top_p": torch.tensor([0.99999, 0.1])}):
        tokens, _ = verify_sample(**{**case, **filters}, backend="cpu")
        assert bool(logits[0, tokens[:, 0].long()].isfinite().all())


@pytest.mark.parametrize("temperature", [1e-38, 1e-35, 1e-31])
def test_temperatures_may_be_as_low_as_float32_allows(temperature: float) -> None:
    logits = torch.tensor([[0.0, 1.0, -1.0], [0.5, 1.0, 0.8]]) * temperature
    case = bonus_rows(logits.repeat(8, 1), temperature=torch.full((16,), temperature))
    case["sample_uniform"] = torch.arange(16, dtype=torch.float64) / 16
    expected = sampled(
        {**case, "logits": case["logits"] / temperature, "temperature": torch.ones(16)}
    )
    assert sampled(case) == expected
    assert len(set(expected)) == 3
    # Logits further apart than that leave the largest alone.
    assert set(sampled({**case, "logits": case["logits"] / temperature})) == {1}


def test_top_p_tells_logits_apart_whose_probabilities_round_to_the_same() -> None:
    logits = 1e-40 * torch.arange(6.0)
    case = bonus_rows(logits.repeat(4, 1), top_p=torch.tensor([1e-38, 0.1, 0.45, 1.0]))
    assert sampled(case | {"sample_uniform": float64([0.0] * 4)}) == [5, 5, 3, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("top_k", [1, 1023, 1024, 1025, 2999, 3000, 2**31 - 1])
def test_more_ties_than_a_search_can_hold_are_all_kept(dtype: torch.dtype, top_k: int) -> None:
    logits = torch.full((4, 5000), -1.0)
    logits[:, 100:3100] = 2.0  # 3,000 equal ones
    logits = logits.to(dtype)
    uniforms = float64([0.0, 0.3, 0.6, 1 - 2**-53])
    drawn = sampled(bonus_rows(logits, top_k=int32([top_k] * 4), sample_uniform=uniforms))
    assert drawn[0] == (0 if top_k > 3000 else 100)
    assert drawn[3] == (4999 if top_k > 3000 else 3099)
    kept = sampled(bonus_rows(logits, top_p=torch.full((4,), 0.5), sample_uniform=uniforms))
    assert (kept[0], kept[3]) == (100, 3099)


BLOCK = 2048  # of ops/cpu/block_math.h


@pytest.mark.parametrize("first", [NEGATIVE_INFINITY, float("nan"), -1e30, -100.0, -30.0])
@pytest.mark.parametrize("filters", [{}, {"top_p": 0.9}, {"top_k": 20}, {"min_p": 0.01}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_first_block_may_say_nothing_about_the_rest(
    first: float, filters: dict[str, float], dtype: torch.dtype
) -> None:
    """A row is weighed by its first block's maximum, unless a later one is too far above it."""
    logits = torch.randn(4, 3 * BLOCK + 11, generator=torch.Generator().manual_seed(3))
    logits[:, :BLOCK] += first
    logits[1, BLOCK : 2 * BLOCK] += 40
    logits[2, 2 * BLOCK :] += torch.linspace(0, 300, BLOCK + 11)
    logits[3, 5] = float("nan")
    parameters = {
        name: torch.full((4,), value, dtype=torch.int32 if name == "top_k" else torch.float32)
        for name, value in filters.items()
    }
    for uniform in (0.0, 0.3, 0.999):
        uniforms = torch.full((4,), uniform, dtype=torch.float64)
        sampled(bonus_rows(logits.to(dtype), sample_uniform=uniforms, **parameters))


@pytest.mark.parametrize("spread", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_flat_rows_have_more_candidates_than_a_search_can_hold(
    spread: float, dtype: torch.dtype
) -> None:
    logits = spread * torch.randn(8, 20_000, generator=torch.Generator().manual_seed(4))
    sampled(
        bonus_rows(
            logits.to(dtype),
            top_p=torch.tensor([0.5, 0.9, 0.999, 1.0, 0.3, 0.7, 0.5, 0.9]),
            # With 600 and 40 top-p goes on with what top-k holds.
            top_k=int32([0, 0, 0, 9000, 15_000, 1500, 600, 40]),
            sample_uniform=float64([0.1, 0.5, 0.99, 0.3, 0.7, 0.9, 0.95, 0.4]),
        )
    )


@pytest.mark.parametrize("of_draft", [0.4, 0.7, 1.0])
@pytest.mark.parametrize(("offset", "accepted"), [(-1e-4, 1), (1e-4, 0)])
def test_block_ends_where_its_chance_says(of_draft: float, offset: float, accepted: int) -> None:
    """The residual is bounded by what is known of the draft; here the bound is all there is."""
    vocab = BLOCK + 100
    p = torch.full((3, vocab), 0.4 / (vocab - 2), dtype=torch.float64)
    p[:, 7], p[:, 2060] = 0.25, 0.35
    q = torch.zeros(2, vocab)
    q[0, 7], q[0, 9] = 0.5, 0.5
    # What else the second draft may be takes next to nothing off the residual.
    q[1, 2060], q[1, 11] = of_draft, 1 - of_draft
    weight = 0.25 / 0.5
    residual = (weight * p[1] - q[1].double()).clamp(min=0).sum().item()
    chance = residual / (residual + 1 - weight)
    case = {
        "logits": p.log().float(),
        "draft_token_ids": int32([7, 2060]),
        "cu_num_draft_tokens": int32([2]),
        "max_draft_len": 2,
        "temperature": torch.ones(1),
        "draft_probs": q,
        "accept_uniform": float64([chance + offset, 1 - 2**-53]),
        "sample_uniform": float64([0.5]),
        "rule": "block",
    }
    tokens, counts = verify_sample(**case, backend="cpu")
    assert counts.tolist() == [accepted + 1]
    assert_right([judge(case, (tokens, counts))], most_ties=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("with_draft_probs", [False, True])
@pytest.mark.parametrize("filters", [{}, {"top_p": 0.9}])
def test_rows_of_many_blocks_may_be_given_up(
    dtype: torch.dtype, with_draft_probs: bool, filters: dict[str, float]
) -> None:
    """The block rule leaves the rest of a row unread where no draft can be accepted any more."""
    num_reqs, num_drafts, vocab = 96, 4, 3 * BLOCK + 11
    generator = torch.Generator().manual_seed(5)
    logits = 2 * torch.randn(num_reqs, num_drafts + 1, vocab, generator=generator)
    logits[..., ::500] += 10 * torch.rand(13, generator=generator)
    drafted = logits[:, :-1].flatten(0, 1)
    q = (drafted + 0.7 * torch.randn(drafted.shape, generator=generator)).softmax(-1)
    size = num_reqs * num_drafts
    case = {
        "logits": logits.flatten(0, 1).to(dtype),
        "draft_token_ids": torch.multinomial(q, 1, generator=generator)[:, 0].int(),
        "cu_num_draft_tokens": torch.arange(num_drafts, size + 1, num_drafts, dtype=torch.int32),
        "max_draft_len": num_drafts,
        "temperature": torch.full((num_reqs,), 0.8),
        "accept_uniform": torch.rand(size, generator=generator, dtype=torch.float64),
        "sample_uniform": torch.rand(num_reqs, generator=generator, dtype=torch.float64),
        "rule": "block",
        **{name: torch.full((num_reqs,), value) for name, value in filters.items()},
    }
    if with_draft_probs:
        case["draft_probs"] = q
    else:  # now and then one that is unlikely
        case["draft_token_ids"][::3] = drafted[::3].argmax(-1).int()
    result = verify_sample(**case, backend="cpu")
    assert len(result[1].unique()) >= 3
    assert_right([judge(case, result)], most_ties=1)
