"""EAGLE-3 (Li et al., 2503.01840)."""

from __future__ import annotations

from vllm_ascend_spec.config.draft_tree import ANY, PATHS
from vllm_ascend_spec.config.method import READS_AHEAD, Method
from vllm_ascend_spec.methods.eagle3.checkpoint import check_eagle3

METHOD = Method(
    name="eagle3",
    about="a head of one layer over states of several of the target's layers",
    options=READS_AHEAD | {"parallel_drafting", PATHS},
    required=("model", "num_speculative_tokens"),
    needs_checkpoint=True,
    has_draft_loop=True,
    trees=ANY,
    check_checkpoint=check_eagle3,
    drafters={
        "vllm": (
            "vllm_ascend_spec.patches.prompt_chunk_end:PieceEndOverride",
            "vllm_ascend_spec.patches.next_token_buffer:BufferOverride",
            "vllm_ascend_spec.methods.loops.vllm.loop:VllmDraftLoop",
            "vllm.v1.spec_decode.eagle:EagleProposer",
        ),
        "ascend": (
            "vllm_ascend_spec.patches.prompt_chunk_end:PieceEndOverride",
            "vllm_ascend_spec.patches.next_token_buffer:BufferOverride",
            "vllm_ascend_spec.methods.loops.ascend.loop:AscendDraftLoop",
            "vllm_ascend_spec.patches.npu_draft_model_block_table:BlockTableOverride",
            "vllm_ascend_spec.patches.npu_eagle3_lm_head:HeadOverride",
            "vllm_ascend.spec_decode.eagle_proposer:AscendEagleProposer",
        ),
    },
)
