"""The KV cache blocks of a draft model where the engine has several groups of them.

Why: vLLM gives a drafter the block table of its own layers' group only if the drafter's class is
one of a few (vllm/v1/worker/gpu_model_runner.py:GPUModelRunner._build_attention_metadata).
``DraftModelProposer`` is not and gets the first group's. If target and draft use different kinds of
attention (a sliding window in one of them), the draft's keys overwrite the target's, and the
answers are wrong.
How: draft step 1 gets the block table of the draft's own group.
Until: that method covers ``DraftModelProposer``, too; 0.33 does not.
"""

from __future__ import annotations

import copy
from typing import Any

from vllm_ascend_spec.patches.first_draft_step import FirstDraftStepMetadata
from vllm_ascend_spec.patches.registry import override


@override
class TableOverride(FirstDraftStepMetadata):
    """Mixin that must precede ``DraftModelProposer`` in the bases."""

    runner: Any
    kv_cache_gid: int

    def metadata_of_first_step(self, metadata: Any) -> Any:
        """Return metadata with the draft's own block table; slots are computed from it."""
        if self.kv_cache_gid == 0:
            return metadata
        table = self.runner.input_batch.block_table[self.kv_cache_gid]
        own = copy.copy(metadata)
        own.block_table_tensor = table.get_device_tensor(metadata.num_reqs)
        return own
