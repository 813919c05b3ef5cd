"""What the runner hands over to the scheduler with its drafts."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.v1.outputs import DraftTokenIds

from vllm_ascend_spec.config.confidence import confidences_of
from vllm_ascend_spec.worker.per_request import PerRequestMixin


class Stock:
    """The part of vLLM's runner that hands over drafts, or None without any."""

    handed_over: Any = None

    def take_draft_token_ids(self) -> Any:
        return self.handed_over


class Runner(PerRequestMixin, Stock):
    """Both, in the order that the docstring asks for."""

    def __init__(self, drafter: Any, *, has_drafts: bool = True) -> None:
        self.drafter = drafter
        mode = SimpleNamespace(has_full_cudagraphs=lambda: False)
        self.vllm_config: Any = SimpleNamespace(
            compilation_config=SimpleNamespace(cudagraph_mode=mode)
        )
        if has_drafts:
            self.handed_over = DraftTokenIds(["a", "b"], [[1, 2], [3, 4]])


class Confident:
    """A drafter with confidences, which are taken once."""

    def __init__(self) -> None:
        self.confidences: torch.Tensor | None = torch.tensor([[0.5, 0.25], [1.0, 0.0]])

    def take_confidences(self) -> torch.Tensor | None:
        found, self.confidences = self.confidences, None
        return found


def test_confidences_travel_with_the_drafts_also_to_another_process() -> None:
    runner = Runner(Confident())
    drafts = pickle.loads(pickle.dumps(runner.take_draft_token_ids()))
    assert drafts.draft_token_ids == [[1, 2], [3, 4]]
    assert confidences_of(drafts) == [[0.5, 0.25], [1.0, 0.0]]


@pytest.mark.parametrize("drafter", [SimpleNamespace(), None])
def test_drafts_of_other_methods_have_none(drafter: Any) -> None:
    assert confidences_of(Runner(drafter).take_draft_token_ids()) is None


def test_drafts_that_were_not_made_have_none() -> None:
    runner = Runner(Confident())
    runner._drafts_for_none = True
    drafts = runner.take_draft_token_ids()
    assert drafts.draft_token_ids == [[], []]
    assert confidences_of(drafts) is None
    # They are not left over for the drafts of a later step.
    runner._drafts_for_none, runner.handed_over = False, DraftTokenIds(["a"], [[1, 2]])
    assert confidences_of(runner.take_draft_token_ids()) is None


def test_a_rank_without_drafts_hands_over_nothing() -> None:
    assert Runner(Confident(), has_drafts=False).take_draft_token_ids() is None
