"""Multi-token prediction (2412.19437): a model drafts for itself with extra layers."""

from __future__ import annotations

from vllm_ascend_spec.config.draft_tree import ANY, PATHS
from vllm_ascend_spec.config.method import READS_AHEAD, Method
from vllm_ascend_spec.methods.mtp.check_window import check_window
from vllm_ascend_spec.methods.mtp.checkpoint import check_mtp
from vllm_ascend_spec.methods.mtp.names import NAMES, warn_of_mtp

# Gemma 4's drafter is a model of its own, which attends to the target's keys and values.
ASSISTANT = "gemma4_mtp"
METHOD = Method(
    name="mtp",
    about="layers of the target's own checkpoint over its last hidden states",
    aliases=NAMES,
    options=READS_AHEAD | {PATHS},
    needs_checkpoint=True,
    is_in_target=True,
    has_draft_loop=True,
    trees=ANY,
    checks=(check_window,),
    check_checkpoint=check_mtp,
    warn=warn_of_mtp,
    drafters={
        "vllm": (
            "vllm_ascend_spec.patches.prompt_chunk_end:PieceEndOverride",
            "vllm_ascend_spec.patches.next_token_buffer:BufferOverride",
            "vllm_ascend_spec.methods.loops.vllm.loop:VllmDraftLoop",
            "vllm.v1.spec_decode.eagle:EagleProposer",
        ),
        "ascend": (
            "vllm_ascend_spec.patches.prompt_chunk_end:PieceEndOverride",
            "vllm_ascend_spec.patches.npu_mla_draft_positions:RotaryOverride",
            "vllm_ascend_spec.patches.next_token_buffer:BufferOverride",
            "vllm_ascend_spec.methods.loops.ascend.loop:AscendDraftLoop",
            "vllm_ascend_spec.patches.npu_mtp_lm_head:HeadOverride",
            "vllm_ascend.spec_decode.eagle_proposer:AscendEagleProposer",
        ),
    },
    drafters_by_type={
        ASSISTANT: {
            "vllm": (
                "vllm_ascend_spec.patches.prompt_chunk_end:PieceEndOverride",
                "vllm_ascend_spec.patches.next_token_buffer:BufferOverride",
                "vllm_ascend_spec.methods.mtp.drafter:AssistantMixin",
                "vllm_ascend_spec.methods.loops.vllm.loop:VllmDraftLoop",
                "vllm.v1.spec_decode.gemma4:Gemma4Proposer",
            ),
            "ascend": (
                "vllm_ascend_spec.patches.prompt_chunk_end:PieceEndOverride",
                "vllm_ascend_spec.patches.next_token_buffer:BufferOverride",
                "vllm_ascend_spec.methods.mtp.drafter:AssistantMixin",
                "vllm_ascend_spec.methods.loops.ascend.loop:AscendDraftLoop",
                "vllm_ascend.spec_decode.gemma4_proposer:AscendGemma4Proposer",
            ),
        },
    },
)
