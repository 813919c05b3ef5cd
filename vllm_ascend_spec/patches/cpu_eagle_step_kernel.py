"""The slot-mapping kernel of draft steps 2..K in vLLM 0.30 on the CPU.

Why: the dispatcher (vllm/v1/spec_decode/utils.py:_eagle_step_slot_mapping_metadata) keeps its
Triton kernel, and the C++ fall-back
(vllm/utils/cpu_triton_utils.py:_eagle_step_slot_mapping_metadata_kernel_impl) names its third
parameter ``stride`` where the dispatcher passes ``block_table_stride``.
How: the dispatcher gets the C++ kernel, wrapped in a function with the right parameter names.
Until: vLLM 0.31, which registers its C++ kernels in ``register_triton_kernel_overrides`` of the
platform and passes their arguments by position.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.patches.patching import Launchable, Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm.utils import cpu_triton_utils as kernels
    from vllm.v1.spec_decode import utils

    stock = kernels._eagle_step_slot_mapping_metadata_kernel_impl

    def step_slot_mapping(
        positions: Any,
        block_table: Any,
        block_table_stride: int,
        seq_lens: Any,
        out_clamped_positions: Any,
        out_slot_mapping: Any,
        block_size: int,
        max_model_len: int,
        n_blocks_per_req: int,
        PAD_ID: int,
        batch_size: int | None = None,
    ) -> None:
        stock(
            positions,
            block_table,
            block_table_stride,
            seq_lens,
            out_clamped_positions,
            out_slot_mapping,
            block_size,
            max_model_len,
            n_blocks_per_req,
            PAD_ID,
            batch_size,
        )

    dispatcher = utils._eagle_step_slot_mapping_metadata
    _patches.set_kernel(dispatcher, Launchable(step_slot_mapping))
