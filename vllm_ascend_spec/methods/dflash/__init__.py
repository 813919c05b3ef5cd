"""DFlash (Chen et al., 2602.06036): a head fills a block of masks in one pass.

The keys and values of the text are computed from states of the target's layers and written once
per token; the pass itself has one row per mask and one for the last token.
"""

from __future__ import annotations

from vllm_ascend_spec.config.draft_tree import ANY, PATHS
from vllm_ascend_spec.config.method import CHECKPOINT, Method
from vllm_ascend_spec.methods.dflash.checkpoint import check_dflash
from vllm_ascend_spec.upstream.limits import OF_DFLASH

METHOD = Method(
    name="dflash",
    about="a head that fills a block of masks in one pass, over states of the target's layers",
    options=CHECKPOINT | OF_DFLASH | {PATHS},
    required=("model", "num_speculative_tokens"),
    needs_checkpoint=True,
    has_draft_loop=True,
    in_one_pass=True,
    trees=ANY,
    check_checkpoint=check_dflash,
    drafters={
        "vllm": (
            "vllm_ascend_spec.patches.next_token_buffer:BufferOverride",
            "vllm_ascend_spec.methods.loops.vllm.loop:VllmDraftLoop",
            "vllm.v1.spec_decode.dflash:DFlashProposer",
        ),
        "ascend": (
            "vllm_ascend_spec.methods.dflash.drafter:InnerStates",
            "vllm_ascend_spec.methods.dflash.context_first:ContextFirst",
            "vllm_ascend_spec.patches.next_token_buffer:BufferOverride",
            "vllm_ascend_spec.methods.loops.ascend.loop:AscendDraftLoop",
            "vllm_ascend.spec_decode.dflash_proposer:AscendDflashProposer",
        ),
    },
)
