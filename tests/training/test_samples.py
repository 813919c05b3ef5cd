"""A sample joins an answer with its hidden states, and is refused if they are another's."""

from __future__ import annotations

import pytest
import torch

from vllm_ascend_spec.training.answer_file import Answer
from vllm_ascend_spec.training.samples import make_sample

ANSWER = Answer("1", (5, 6), (7, 8, 9), "stop")


@pytest.mark.parametrize("count", [4, 5])
def test_the_loss_is_on_the_answer(count: int) -> None:
    tokens, states = torch.tensor([5, 6, 7, 8, 9][:count]), torch.zeros(count, 2, 4)
    found = make_sample(ANSWER, tokens, states)
    assert found.id == "1"
    assert found.token_ids.tolist() == tokens.tolist()
    assert found.loss_mask.tolist() == [False, False, True, True, True][:count]
    assert found.hidden_states is states


@pytest.mark.parametrize("tokens", [[5, 6, 7], [5, 6, 7, 9], [5, 6, 7, 8, 9, 9]])
def test_states_of_other_tokens_are_refused(tokens: list[int]) -> None:
    with pytest.raises(ValueError, match="hidden states are of other tokens than the 5 of its"):
        make_sample(ANSWER, torch.tensor(tokens), torch.zeros(len(tokens), 2, 4))
