"""EAGLE (Li et al., 2401.15077)."""

from __future__ import annotations

from vllm_ascend_spec.config.draft_tree import ANY, PATHS
from vllm_ascend_spec.config.method import READS_AHEAD, Method
from vllm_ascend_spec.methods.eagle.checkpoint import check_eagle

METHOD = Method(
    name="eagle",
    about="a head of one layer over the target's hidden states",
    options=READS_AHEAD | {PATHS},
    required=("model", "num_speculative_tokens"),
    needs_checkpoint=True,
    has_draft_loop=True,
    trees=ANY,
    check_checkpoint=check_eagle,
    drafters={
        "vllm": (
            "vllm_ascend_spec.patches.prompt_chunk_end:PieceEndOverride",
            "vllm_ascend_spec.patches.next_token_buffer:BufferOverride",
            "vllm_ascend_spec.methods.loops.vllm.loop:VllmDraftLoop",
            "vllm_ascend_spec.patches.eagle_layer_types:LayersOverride",
            "vllm.v1.spec_decode.eagle:EagleProposer",
        ),
        "ascend": (
            "vllm_ascend_spec.patches.prompt_chunk_end:PieceEndOverride",
            "vllm_ascend_spec.patches.next_token_buffer:BufferOverride",
            "vllm_ascend_spec.methods.loops.ascend.loop:AscendDraftLoop",
            "vllm_ascend_spec.patches.eagle_layer_types:LayersOverride",
            "vllm_ascend.spec_decode.eagle_proposer:AscendEagleProposer",
        ),
    },
)
