"""All drafts from one pass over masks behind the text: PARD, P-EAGLE, DFlash.

A request has K masks there, or K-1 and its last token. They are at the positions of the drafts, so
near the end of the context some are beyond it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

PADDING_SLOT = -1


def keep_inside(
    metadata: Any,
    positions: torch.Tensor,  # [num_tokens]
    max_model_len: int,
    block_size: int,
) -> None:
    """Keep masks beyond ``max_model_len`` within every table, in place.

    They write nowhere, no row that counts attends to them, and the scheduler drops their drafts.
    vLLM drafts for nobody while one request is as near to its end.

    Args:
        metadata: vLLM's ``CommonAttentionMetadata`` of the pass.
        positions: int64 or int32, of its rows.
        max_model_len: most tokens of a request.
        block_size: tokens of a block of the table.
    """
    beyond = positions >= max_model_len
    metadata.slot_mapping = metadata.slot_mapping.masked_fill(beyond, PADDING_SLOT)
    positions.clamp_(max=max_model_len - 1)
    missing = metadata.max_seq_len - metadata.block_table_tensor.shape[1] * block_size
    if not metadata.causal:
        metadata.seq_lens = metadata.seq_lens.clamp(max=max_model_len)
    elif missing > 0:
        # Where a row of a causal pass stands is counted from the end, so lengths have to stay.
        wider = F.pad(metadata.block_table_tensor, (0, -(-missing // block_size)))
        metadata.block_table_tensor = wider


def rows_of_drafts(
    indices: torch.Tensor,  # [num_reqs * rows of each]
    num_reqs: int,
    num_drafts: int,
) -> torch.Tensor:
    """Return which rows of a pass the drafts are read from, [num_reqs, num_drafts].

    A pass may have rows for more drafts than this step wants, with a schedule of K.
    """
    return indices.view(num_reqs, -1)[:, :num_drafts]
