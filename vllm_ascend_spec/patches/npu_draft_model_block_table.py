"""Drafts with rows of their own, where a full graph on the NPU has more requests than the batch.

Why: if the target's graph has more requests than the batch, vllm-ascend 0.30.0rc2
(vllm_ascend/attention/utils.py:AscendCommonAttentionMetadata.unpadded) trims every per-request
tensor but the block table. A draft model, and a P-EAGLE head with its masks, read the number of
requests from it (vllm/v1/spec_decode/utils.py:compute_new_slot_mapping). The engine ends.
How: draft step 1 gets only the batch's rows of the block table.
Until: ``unpadded`` trims the block table, too; 0.30.0rc2 is the newest release.
"""

from __future__ import annotations

import copy
from typing import Any

from vllm_ascend_spec.patches.first_draft_step import FirstDraftStepMetadata
from vllm_ascend_spec.patches.registry import override


@override
class BlockTableOverride(FirstDraftStepMetadata):
    """Mixin that must precede vllm-ascend's proposer in the bases."""

    needs_extra_input_slots: bool

    def metadata_of_first_step(self, metadata: Any) -> Any:
        """Drop the block table's padding rows, except for drafters whose graphs need them."""
        if not self.needs_extra_input_slots:
            return metadata
        own = copy.copy(metadata)
        own.block_table_tensor = metadata.block_table_tensor[: metadata.num_reqs]
        return own
