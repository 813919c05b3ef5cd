"""Rotary positions in draft steps 2 to K of a model with MLA, on the NPU.

Why: vllm-ascend 0.30.0rc2 prepares all draft steps before it runs the first one
(vllm_ascend/spec_decode/llm_base_proposer.py:AscendSpecDecodeBaseProposer._propose), but has one
buffer for the cosines and sines of MLA (vllm_ascend/ops/rotary_embedding.py:get_cos_and_sin_mla).
So every step is rotated by the positions of the last one, and drafts are worse. With sparse
attention (vllm_ascend/attention/sfa_v1.py:AscendSFAMetadataBuilder._build) draft steps 2 to K write
no buffer at all, so that a full graph rotates them by the positions of step 1.
How: draft steps 2 to K have buffers of their own, the same ones at a graph's capture and replay.
Until: vllm-ascend has buffers for each draft step; 0.30.0rc2 is the newest release.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from vllm_ascend_spec.patches.registry import override

# Cosines and sines, [max_num_batched_tokens, 1, 1, rope_dim] each; None for a model without MLA.
Tables = tuple[torch.Tensor | None, torch.Tensor | None]


@override
class RotaryOverride:
    """Mixin for a proposer of vllm-ascend; must precede our loop in the bases.

    ``rotary_tables`` maps each ``draft_index`` from 1, that is draft steps 2 to K, to its tables.
    """

    def attn_update_stack_num_spec_norm(
        self: Any, draft_index: int, *args: Any, **kwargs: Any
    ) -> tuple[Any, Any]:
        """Build the metadata of a draft step after step 1; the signature is vllm-ascend's."""
        with keeping_tables():
            tables = self._use_tables_of(draft_index)
            common, metadata = super().attn_update_stack_num_spec_norm(  # type: ignore[misc]
                draft_index, *args, **kwargs
            )
        read_tables(metadata, tables)
        return common, metadata

    def dummy_run(self: Any, *args: Any, **kwargs: Any) -> None:
        """Run with nothing to draft, or capture a graph; the signature is vllm-ascend's."""
        with keeping_tables():
            super().dummy_run(*args, **kwargs)  # type: ignore[misc]

    def _prepare_dcp_draft_dummy_metadata(
        self: Any, common_attn_metadata: Any, draft_index: int
    ) -> None:
        """Prepare for the metadata of a step to be captured; the signature is vllm-ascend's."""
        if draft_index > 0:
            self._use_tables_of(draft_index)
        super()._prepare_dcp_draft_dummy_metadata(common_attn_metadata, draft_index)  # type: ignore[misc]

    def _use_tables_of(self: Any, draft_index: int) -> Tables:
        """Make vllm-ascend write a step's cosines and sines to that step's own tables."""
        by_step: dict[int, Tables] = vars(self).setdefault("rotary_tables", {})
        if draft_index not in by_step:
            cosines, sines = shared_tables()
            by_step[draft_index] = like(cosines), like(sines)
        set_tables(by_step[draft_index])
        return by_step[draft_index]


def like(table: torch.Tensor | None) -> torch.Tensor | None:
    """Return zeros of the table's shape, or None if there is no table."""
    return None if table is None else torch.zeros_like(table)


def read_tables(metadata: Any, tables: Tables) -> None:
    """Make a step's metadata read its cosines and sines in the step's tables.

    Args:
        metadata: vllm-ascend's, of any attention. That of sparse attention has ``cos`` and ``sin``,
            [num_rows, 1, 1, rope_dim] each; others have theirs elsewhere, in the tables already.
        tables: of the step; written.
    """
    for name, table in zip(("cos", "sin"), tables, strict=True):
        values = getattr(metadata, name, None)
        if table is None or values is None or values.data_ptr() == table.data_ptr():
            continue
        kept = table[: values.shape[0]]
        kept.copy_(values)
        setattr(metadata, name, kept)


def shared_tables() -> Tables:
    """Return the tables that vllm-ascend uses now."""
    from vllm_ascend.ops import rotary_embedding

    return rotary_embedding._cos_mla, rotary_embedding._sin_mla


def set_tables(tables: Tables) -> None:
    """Make vllm-ascend use these tables."""
    from vllm_ascend.ops import rotary_embedding

    rotary_embedding._cos_mla, rotary_embedding._sin_mla = tables


@contextmanager
def keeping_tables() -> Iterator[None]:
    """Restore vllm-ascend's tables on exit."""
    shared = shared_tables()
    try:
        yield
    finally:
        set_tables(shared)
