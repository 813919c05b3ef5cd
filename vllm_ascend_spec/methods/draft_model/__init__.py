"""A small model of the same vocabulary drafts for a large one (Leviathan et al., 2211.17192)."""

from __future__ import annotations

from vllm_ascend_spec.config.draft_tree import ANY, PATHS
from vllm_ascend_spec.config.method import CHECKPOINT, Method
from vllm_ascend_spec.methods.draft_model.checkpoint import check_draft_model

METHOD = Method(
    name="draft_model",
    about="a small model of the target's vocabulary",
    options=CHECKPOINT | {"use_heterogeneous_vocab", "parallel_drafting", PATHS},
    required=("model", "num_speculative_tokens"),
    needs_checkpoint=True,
    has_draft_loop=True,
    trees=ANY,
    check_checkpoint=check_draft_model,
    drafters={
        "vllm": (
            "vllm_ascend_spec.patches.next_token_buffer:BufferOverride",
            "vllm_ascend_spec.methods.loops.vllm.loop:VllmDraftLoop",
            "vllm_ascend_spec.patches.draft_model_block_table:TableOverride",
            "vllm.v1.spec_decode.draft_model:DraftModelProposer",
        ),
        "ascend": (
            "vllm_ascend_spec.patches.next_token_buffer:BufferOverride",
            "vllm_ascend_spec.methods.loops.ascend.loop:AscendDraftLoop",
            "vllm_ascend_spec.patches.npu_draft_model_graph:GraphOverride",
            "vllm_ascend_spec.patches.npu_draft_model_block_table:BlockTableOverride",
            "vllm_ascend_spec.patches.npu_draft_model_lengths:LengthsOverride",
            "vllm_ascend.spec_decode.draft_proposer:AscendDraftModelProposer",
        ),
    },
)
