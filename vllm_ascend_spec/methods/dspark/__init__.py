"""DSpark: a DFlash head whose drafts also read the draft before them.

A DFlash head (2602.06036) fills a block in one pass, so its drafts do not know each other. DSpark
(DeepSeek's checkpoints ``dspark_qwen3_*``; speculators 0.9, ``speculators/models/dspark``) runs the
same pass and then goes through its rows from left to right. To the logits of a row it adds what a
Markov head says about the token before: row ``a`` of a V x r matrix, the embedding of that token,
times an r x V matrix. Only these small steps are sequential. A third part, the confidence head,
estimates for each row the probability that its draft is accepted. With ``draft_length="adaptive"``
it limits how many drafts of a request are verified, where the scheduler can know it in time
(``control/confidence.py``).

Layouts of a block (``sample_from_anchor`` in ``config.json``): the last token and K-1 masks, where
each row yields the token after it; or, as in DFlash, the last token and K masks, where each mask
yields the token in its place.

- vLLM 0.30 has it in model runner V2 only (vllm/v1/worker/gpu/spec_decode/dspark/speculator.py:
  DSparkSpeculator); the model is vllm/model_executor/models/qwen3_dspark.py:Qwen3DSparkForCausalLM.
  On CPU and CUDA this package has its own drafter over the V1 proposer of DFlash.
- vllm-ascend 0.30.0rc2 has a V1 proposer
  (vllm_ascend/spec_decode/dspark_proposer.py:AscendDSparkProposer). With
  ``additional_config.dynamic_spec_config`` it verifies fewer drafts of a request if the confidence
  head expects little; this package refuses that option by name (``config/ascend.py``).

The heads of DeepSeek V4, Kimi K3 and Gemma 4, which vLLM has as models of their own, are refused:
nothing here has loaded them.
"""

from __future__ import annotations

from vllm_ascend_spec.config.method import CHECKPOINT, Method
from vllm_ascend_spec.methods.dspark.checkpoint import check_dspark
from vllm_ascend_spec.methods.dspark.checks import check_argmax, check_draft_loop
from vllm_ascend_spec.upstream.limits import OF_DFLASH

METHOD = Method(
    name="dspark",
    about="a head that fills a block in one pass, and then corrects each draft by the one before",
    options=CHECKPOINT | OF_DFLASH | {"dspark_draft_topk"},
    required=("model", "num_speculative_tokens"),
    needs_checkpoint=True,
    has_draft_loop=True,
    in_one_pass=True,
    checks=(check_draft_loop, check_argmax),
    check_checkpoint=check_dspark,
    drafters={
        "vllm": (
            "vllm_ascend_spec.methods.dspark.drafter:BlockOfRows",
            "vllm_ascend_spec.methods.dspark.markov:MarkovDrafts",
            "vllm_ascend_spec.patches.next_token_buffer:BufferOverride",
            "vllm_ascend_spec.methods.loops.vllm.loop:VllmDraftLoop",
            "vllm.v1.spec_decode.dflash:DFlashProposer",
        ),
        "ascend": (
            "vllm_ascend_spec.methods.dspark.drafter:AscendBlockOfRows",
            "vllm_ascend_spec.methods.dspark.markov:MarkovDrafts",
            "vllm_ascend_spec.methods.dflash.drafter:InnerStates",
            "vllm_ascend_spec.methods.dflash.context_first:ContextFirst",
            "vllm_ascend_spec.patches.next_token_buffer:BufferOverride",
            "vllm_ascend_spec.methods.loops.ascend.loop:AscendDraftLoop",
            "vllm_ascend.spec_decode.dspark_proposer:AscendDSparkProposer",
        ),
    },
)
