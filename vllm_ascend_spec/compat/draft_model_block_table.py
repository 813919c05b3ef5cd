"""The KV cache blocks of a draft model where the engine has several groups of them.

Why: vLLM hands a drafter the block table of the group that its own layers are in, but only drafters
of some classes (vllm/v1/worker/gpu_model_runner.py:GPUModelRunner._build_attention_metadata);
``DraftModelProposer`` is none of them and gets that of the first group. Where target and draft
differ in kind of attention (a sliding window in one of them), the draft's keys are written over the
target's, and the answers are wrong.
How: the first pass gets the table of the draft's own group.
Until: that method asks the draft model's proposer, too; 0.33 does not.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.compat.registry import override

if TYPE_CHECKING:
    import torch


@override
class TableOverride:
    """Mix into ``DraftModelProposer``, before it in the bases."""

    runner: Any
    kv_cache_gid: int

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
        """Prepare the first pass with the draft's own block table; slots follow from it."""
        if self.kv_cache_gid > 0:
            table = self.runner.input_batch.block_table[self.kv_cache_gid]
            cad = copy.copy(cad)
            cad.block_table_tensor = table.get_device_tensor(cad.num_reqs)
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
