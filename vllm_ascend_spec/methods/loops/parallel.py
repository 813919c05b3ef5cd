"""All drafts from one pass over mask tokens after the text: PARD, P-EAGLE, DFlash.

A request has K masks, or its last token and K-1 masks. They are at the positions of the drafts, so
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

    They write nowhere, no row that is used attends to them, and the scheduler drops their drafts.
    vLLM instead stops drafting for all requests while one is that close to its end.

    Args:
        metadata: vLLM's ``CommonAttentionMetadata`` of the pass.
        positions: int64 or int32, positions of its rows.
        max_model_len: maximum number of tokens in a request.
        block_size: tokens per block of the block table.
    """
    beyond = positions >= max_model_len
    metadata.slot_mapping = metadata.slot_mapping.masked_fill(beyond, PADDING_SLOT)
    positions.clamp_(max=max_model_len - 1)
    missing = metadata.max_seq_len - metadata.block_table_tensor.shape[1] * block_size
    if not metadata.causal:
        metadata.seq_lens = metadata.seq_lens.clamp(max=max_model_len)
    elif missing > 0:
        # A causal pass counts a row's place from the end, so the lengths must not change.
        wider = F.pad(metadata.block_table_tensor, (0, -(-missing // block_size)))
        metadata.block_table_tensor = wider


def rows_of_drafts(
    indices: torch.Tensor,  # [num_reqs * rows of each]
    num_reqs: int,
    k: int,
) -> torch.Tensor:
    """Return the rows of a pass that yield the drafts, [num_reqs, k].

    With a K schedule a pass may have rows for more drafts than this step wants.
    """
    return indices.view(num_reqs, -1)[:, :k]
