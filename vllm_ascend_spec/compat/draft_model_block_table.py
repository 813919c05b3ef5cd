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
from typing import Any

from vllm_ascend_spec.compat.first_pass import FirstPassMetadata
from vllm_ascend_spec.compat.registry import override


@override
class TableOverride(FirstPassMetadata):
    """Mix into ``DraftModelProposer``, before it in the bases."""

    runner: Any
    kv_cache_gid: int

    def metadata_of_first_pass(self, metadata: Any) -> Any:
        """Put the draft's own block table in; slots follow from it."""
        if self.kv_cache_gid == 0:
            return metadata
        table = self.runner.input_batch.block_table[self.kv_cache_gid]
        own = copy.copy(metadata)
        own.block_table_tensor = table.get_device_tensor(metadata.num_reqs)
        return own
