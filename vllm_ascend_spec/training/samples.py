"""Training samples from answers and the hidden states that vLLM's connector kept of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_ascend_spec.training.answer_file import Answer
from vllm_ascend_spec.training.shards import Sample

if TYPE_CHECKING:
    import torch


def make_sample(
    answer: Answer,
    token_ids: torch.Tensor,  # [num_states]
    hidden_states: torch.Tensor,  # [num_states, num_layers, hidden_size]
) -> Sample:
    """Return the sample of an answer.

    Args:
        answer: prompt and answer.
        token_ids: tokens that have states, as ``ExampleHiddenStatesConnector`` stores them. The
            engine that made the answer has none of its last token, which it never read.
        hidden_states: their states.

    Raises:
        ValueError: the states are of other tokens.
    """
    import torch

    expected, count = answer.all_token_ids(), len(token_ids)
    if token_ids.tolist() != expected[:count] or count < len(expected) - 1:
        raise ValueError(
            f"sample {answer.id}: {count} hidden states are of other tokens than the "
            f"{len(expected)} of its prompt and answer"
        )
    mask = torch.tensor(answer.loss_mask()[:count], dtype=torch.bool)
    return Sample(answer.id, token_ids, mask, hidden_states)
