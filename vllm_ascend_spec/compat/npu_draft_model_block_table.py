"""A draft model in a full graph on the NPU, with more requests than the batch has.

Why: where the target's graph has more requests than the batch, vllm-ascend 0.30.0rc2
(vllm_ascend/attention/utils.py:AscendCommonAttentionMetadata.unpadded) cuts everything back but the
block table, from which a draft model reads the number of requests
(vllm/v1/spec_decode/utils.py:compute_new_slot_mapping). The engine ends.
How: the first pass gets the table of the batch alone.
Until: ``unpadded`` cuts the block table, too; 0.30.0rc2 is the newest release.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.compat.registry import override

if TYPE_CHECKING:
    import torch


@override
class BlockTableOverride:
    """Mix into ``AscendDraftModelProposer``, before it in the bases."""

    def set_inputs_first_pass(
        self,
        target_token_ids: torch.Tensor,  # [num_tokens]
        next_token_ids: torch.Tensor,  # [num_reqs]
        target_positions: torch.Tensor,  # [num_tokens]
        target_hidden_states: torch.Tensor,  # [num_tokens, hidden_size]
        token_indices_to_sample: torch.Tensor | None,  # [num_reqs]
        cad: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Prepare the first pass with the metadata ``cad`` of the batch without padding."""
        cad = copy.copy(cad)
        cad.block_table_tensor = cad.block_table_tensor[: cad.num_reqs]
        return super().set_inputs_first_pass(  # type: ignore[misc]
            target_token_ids,
            next_token_ids,
            target_positions,
            target_hidden_states,
            token_indices_to_sample,
            cad,
            *args,
            **kwargs,
        )
