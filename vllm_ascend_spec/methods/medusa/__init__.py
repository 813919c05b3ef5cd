"""Medusa (Cai et al., 2401.10774): one head for each token ahead."""

from __future__ import annotations

from vllm_ascend_spec.checkpoint.architectures.medusa import count_of
from vllm_ascend_spec.config.draft_heads import OPTIONS, check_count, check_whole, number_of_heads
from vllm_ascend_spec.config.draft_tree import ANY, PATHS
from vllm_ascend_spec.config.method import Method
from vllm_ascend_spec.methods.medusa.checkpoint import check_medusa

METHOD = Method(
    name="medusa",
    about="a head for each token ahead, over the target's last hidden state",
    options=OPTIONS | {PATHS},
    required=("model", "num_speculative_tokens"),
    needs_checkpoint=True,
    trees=ANY,
    most_steps=number_of_heads(count_of),
    checks=(check_whole, check_count(count_of)),
    check_checkpoint=check_medusa,
    # vLLM knows the name up to 0.32, but would build its own model, which 0.33 does not have.
    vllm_method="custom_class",
    drafters=dict.fromkeys(
        ("vllm", "ascend"), ("vllm_ascend_spec.methods.medusa.drafter:MedusaDrafter",)
    ),
)
