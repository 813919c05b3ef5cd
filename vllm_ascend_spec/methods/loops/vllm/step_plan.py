"""Plan where draft steps 2 to K write and what they attend to, for all steps at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

PADDING_SLOT = -1


class StepPlan(NamedTuple):
    """Metadata of draft steps 2 to K; filled by :func:`plan_steps`.

    Attributes:
        positions: int64 [num_reqs], with M-RoPE [3, num_reqs], for each step, position of its
            input token.
        slots: int64 [num_reqs] for each step, KV cache slot of that token.
        seq_lens: int32 [num_reqs] for each step, number of tokens that token attends to, itself
            included.
    """

    positions: Sequence[torch.Tensor]
    slots: Sequence[torch.Tensor]
    seq_lens: Sequence[torch.Tensor]


class LastRows(NamedTuple):
    """What the draft's last layer has to compute in draft step 1.

    Attributes:
        rows: int64 [num_reqs], the row of each request whose result is needed.
        metadata: attention metadata of these rows by layer name; None if only the keys and values
            of all rows are needed.
    """

    rows: torch.Tensor
    metadata: dict[str, Any] | None


def plan_steps(
    positions: torch.Tensor,  # [num_reqs], or [3, num_reqs]
    seq_lens: torch.Tensor,  # [num_reqs]
    block_table: torch.Tensor,  # [num_reqs, max_blocks]
    block_size: int,
    max_model_len: int,
    num_steps: int,
    places: torch.Tensor | None = None,  # [num_reqs]
) -> StepPlan:
    """Plan ``num_steps`` draft steps.

    A step past ``max_model_len`` runs at position 0 on one token and writes nowhere; the
    scheduler drops its token. Once past, a request stays past: the clamped position is only what
    the model sees. Up to that point the results equal those of vLLM's
    ``eagle_step_update_slot_mapping_and_metadata`` (vllm/v1/spec_decode/utils.py), which runs once
    per step.

    Args:
        positions: int64, position of each request's last token in draft step 1.
        seq_lens: int32, number of tokens that draft step 1 attended to.
        block_table: int32, KV cache blocks of each request.
        block_size: tokens per block.
        max_model_len: maximum number of tokens in a request.
        num_steps: how many steps to plan, at least 1.
        places: int64, which token of its request that last one is; None if the position says it,
            as it does without M-RoPE.
    """
    ahead = torch.arange(1, num_steps + 1, device=positions.device)[:, None]
    raw = (positions if places is None else places) + ahead
    past = raw >= max_model_len
    clamped = raw.masked_fill(past, 0)
    blocks = (clamped // block_size).clamp_(max=block_table.shape[1] - 1)
    slots = block_table.T.gather(0, blocks) * block_size + clamped % block_size
    lengths = (seq_lens + ahead).clamp_(max=max_model_len).masked_fill_(past, 1)
    slots = slots.long().masked_fill_(past, PADDING_SLOT)
    if places is not None:
        if positions.ndim > 1:
            ahead, past = ahead[:, None], past[:, None]
        clamped = (positions + ahead).masked_fill_(past, 0)
    return StepPlan(clamped.unbind(), slots.unbind(), lengths.int().unbind())


def plan_in_place(
    positions: torch.Tensor,  # [num_reqs]
    seq_lens: torch.Tensor,  # [num_reqs]
    num_steps: int,
) -> StepPlan:
    """Plan ``num_steps`` draft steps of a draft that writes no keys and values.

    All of them are where draft step 1 was, and attend to what it attended to.

    Args:
        positions: int64, position of each request's last token in draft step 1.
        seq_lens: int32, number of tokens that draft step 1 attended to.
        num_steps: how many steps to plan, at least 1.
    """
    nowhere = torch.full_like(positions, PADDING_SLOT)
    return StepPlan([positions] * num_steps, [nowhere] * num_steps, [seq_lens] * num_steps)
