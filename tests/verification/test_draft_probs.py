"""The drafts' distributions are laid out request by request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from vllm_ascend_spec.verification.draft_probs import gather_draft_probs

VOCAB, STEPS = 5, 3


def spec(*drafts: list[int]) -> Any:
    flat = [token for request in drafts for token in request]
    return SimpleNamespace(
        num_draft_tokens=[len(request) for request in drafts],
        draft_token_ids=torch.tensor(flat, dtype=torch.int32),
    )


def laws(num_reqs: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.rand((num_reqs, STEPS, VOCAB), generator=generator).softmax(-1)


def one_hot(token: int) -> list[float]:
    return [float(token == other) for other in range(VOCAB)]


def test_rows_follow_the_batch_and_not_the_drafting() -> None:
    known = laws(3)
    found = gather_draft_probs(known, ["a", "b", "c"], ["c", "a"], spec([1, 2, 3], [4]))
    assert found is not None
    assert torch.equal(found, torch.cat([known[2], known[0, :1]]))


def test_a_request_that_was_not_drafted_keeps_the_others_distributions() -> None:
    """vLLM pads a new request with drafts of -1 beside those that have drafts."""
    known = laws(2)
    found = gather_draft_probs(known, ["a", "b"], ["new", "b"], spec([-1, -1, -1], [2, 3]))
    assert found is not None
    assert torch.equal(found[3:], known[1, :2])
    assert not found.isnan().any()


def test_drafts_that_nobody_sampled_are_one_hot() -> None:
    """vLLM fills in token 0 where it did not draft: verified as drawn, they would be wrong."""
    found = gather_draft_probs(laws(1), ["a"], ["old", "a"], spec([0, 4], [1]))
    assert found is not None
    assert found[:2].tolist() == [one_hot(0), one_hot(4)]


def test_more_drafts_than_steps_are_one_hot() -> None:
    found = gather_draft_probs(laws(1), ["a"], ["a"], spec([1, 2, 3, 4]))
    assert found is not None
    assert torch.equal(found[:STEPS], laws(1)[0])
    assert found[STEPS].tolist() == one_hot(4)


@pytest.mark.parametrize(
    ("known", "ids", "drafts"),
    [
        (None, None, ([1],)),
        (laws(1), None, ([1],)),
        (laws(1), ["b"], ([1, 2],)),
        (laws(1), ["a"], ([],)),
    ],
)
def test_without_a_distribution_there_is_none(known: Any, ids: Any, drafts: Any) -> None:
    assert gather_draft_probs(known, ids, ["a"], spec(*drafts)) is None


def test_what_is_known_is_left_as_it_was() -> None:
    known = laws(2)
    gather_draft_probs(known, ["a", "b"], ["x", "a", "b"], spec([0], [1, 2], [3]))
    assert torch.equal(known, laws(2))
