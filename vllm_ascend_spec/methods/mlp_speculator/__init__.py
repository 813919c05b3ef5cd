"""MLP speculators (Wertheimer et al., 2404.19124): a state is passed from draft to draft."""

from __future__ import annotations

from vllm_ascend_spec.checkpoint.architectures.mlp_speculator import count_of
from vllm_ascend_spec.config.draft_heads import OPTIONS, check_count, check_whole
from vllm_ascend_spec.config.method import Method
from vllm_ascend_spec.methods.mlp_speculator.checkpoint import check_mlp_speculator

METHOD = Method(
    name="mlp_speculator",
    about="stages of one layer over the target's last hidden state and the token before",
    options=OPTIONS,
    required=("model", "num_speculative_tokens"),
    needs_checkpoint=True,
    checks=(check_whole, check_count(count_of)),
    check_checkpoint=check_mlp_speculator,
    # vLLM knows the name up to 0.32, but no model runner V1 has the method.
    vllm_method="custom_class",
    drafters=dict.fromkeys(
        ("vllm", "ascend"),
        ("vllm_ascend_spec.methods.mlp_speculator.drafter:MlpSpeculatorDrafter",),
    ),
)
