"""The batches that ``benchmarks verify`` makes."""

from __future__ import annotations

import pytest
import torch

from tests.benchmarks.verify.cases import (
    ACCEPTANCES,
    KINDS,
    NUM_DRAFTS,
    VerifyCase,
    count_batches,
    describe,
    make_batch,
    plan_cases,
)
from tests.benchmarks.verify.peers import our_call

CPU = torch.device("cpu")
VOCAB = 96


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_every_draft_is_accepted_so_every_row_is_read(kind: str, dtype: torch.dtype) -> None:
    batch = make_batch(VerifyCase(kind, VOCAB, 5), dtype, CPU)
    assert batch.logits.dtype == dtype
    _, counts = our_call(kind, batch, "reference")()
    assert counts.tolist() == [KINDS[kind].num_drafts + 1] * 5


def test_mixed_greedy_requests_accept_every_number_of_drafts() -> None:
    batch = make_batch(VerifyCase("greedy", VOCAB, 6, "mixed"), torch.float32, CPU)
    _, counts = our_call("greedy", batch, "reference")()
    assert (counts - 1).tolist() == [2, 3, 4, 0, 1, 2]


def test_further_batches_of_a_case_go_on_with_other_requests() -> None:
    case = VerifyCase("greedy", VOCAB, 1, "mixed")
    batches = [make_batch(case, torch.float32, CPU, index) for index in range(6)]
    counts = [our_call("greedy", batch, "reference")()[1].item() for batch in batches]
    assert counts == [3, 4, 5, 1, 2, 3]
    assert not torch.equal(batches[0].logits, batches[1].logits)


@pytest.mark.parametrize(
    ("case", "cold", "batches"),
    [
        (VerifyCase("plain", 32_000, 8), False, 1),
        (VerifyCase("block", 32_000, 8, "mixed"), False, 4),
        (VerifyCase("block", 32_000, 7, "mixed"), False, 5),
        (VerifyCase("block", 32_000, 64, "mixed"), False, 1),
        (VerifyCase("plain", 32_000, 8), True, 27),
        (VerifyCase("plain", 151_936, 32), True, 2),
        (VerifyCase("block", 151_936, 8, "mixed"), True, 6),
        (VerifyCase("plain", 64, 1), True, 1024),
    ],
)
def test_batches_are_as_many_as_chance_and_caches_ask_for(
    case: VerifyCase, cold: bool, batches: int
) -> None:
    assert count_batches(case, 4, cold=cold) == batches


@pytest.mark.parametrize(
    "kind", [name for name, kind in KINDS.items() if kind.temperature > 0 and kind.num_drafts]
)
def test_mixed_sampled_requests_accept_some(kind: str) -> None:
    batch = make_batch(VerifyCase(kind, VOCAB, 40, "mixed"), torch.float32, CPU)
    _, counts = our_call(kind, batch, "reference")()
    assert len(counts.unique()) >= 3


def test_the_same_case_gives_the_same_numbers() -> None:
    case = VerifyCase("block-sampled-drafts", VOCAB, 3, "mixed")
    for one, other in zip(
        make_batch(case, torch.float32, CPU), make_batch(case, torch.float32, CPU), strict=True
    ):
        assert (one is None and other is None) or torch.equal(one, other)


def test_kinds_of_one_size_share_their_logits() -> None:
    """Otherwise the kinds' times could not be compared."""
    kinds = [name for name, kind in KINDS.items() if kind.peaked and kind.num_drafts]
    batches = [make_batch(VerifyCase(kind, VOCAB, 2), torch.float32, CPU) for kind in kinds]
    assert all(torch.equal(batch.logits, batches[0].logits) for batch in batches)


def test_filters_are_those_of_the_kind() -> None:
    batch = make_batch(VerifyCase("top-k-top-p", VOCAB, 2), torch.float32, CPU)
    assert batch.top_k is not None
    assert batch.top_k.tolist() == [50, 50]
    assert batch.top_p is not None
    assert batch.top_p.tolist() == pytest.approx([0.95, 0.95])
    plain = make_batch(VerifyCase("plain", VOCAB, 2), torch.float32, CPU)
    assert plain.top_k is plain.top_p is plain.draft_probs is None


def test_rows_are_as_peaked_as_a_language_models() -> None:
    batch = make_batch(VerifyCase("plain", 32_000, 4), torch.float32, CPU)
    described = describe(batch)
    assert 0.2 < described["mean_max_prob"] < 0.9
    assert 1 <= described["median_tokens_in_top_p_0.95"] < 50
    spread = describe(make_batch(VerifyCase("seeded-spread", 32_000, 1), torch.float32, CPU))
    assert spread["median_tokens_in_top_p_0.95"] > 50


def test_draft_probs_are_distributions_and_drafts_come_from_them() -> None:
    batch = make_batch(VerifyCase("sampled-drafts", VOCAB, 8), torch.float32, CPU)
    assert batch.draft_probs is not None
    assert torch.allclose(batch.draft_probs.sum(-1), torch.ones(8 * NUM_DRAFTS))
    chosen = batch.draft_probs.gather(1, batch.draft_token_ids.long()[:, None])
    assert bool((chosen > 0).all())


def test_the_block_rule_is_measured_with_rejections_too() -> None:
    cases = plan_cases(("plain", "block"), (8,), (1,), None)
    assert [(case.kind, case.acceptance) for case in cases] == [
        ("plain", "all"),
        ("block", "all"),
        ("block", "mixed"),
    ]
    assert {case.acceptance for case in plan_cases(("plain",), (8,), (1,), ACCEPTANCES)} == set(
        ACCEPTANCES
    )


def test_rows_of_a_case() -> None:
    assert VerifyCase("plain", 8, 3).num_rows == 3 * (NUM_DRAFTS + 1)
    assert VerifyCase("seeded-no-drafts", 8, 3).num_rows == 3
    assert str(VerifyCase("plain", 8, 3)) == "plain V=8 B=3 accepted=all"
