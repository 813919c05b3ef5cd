"""Models whose MTP layers vLLM loads if their checkpoint is given as the draft.

The same as vllm/config/speculative.py:SpeculativeConfig.hf_config_override;
``tests/config/test_detect.py`` compares them.
"""

from __future__ import annotations

MODEL_TYPES = frozenset(
    """
    bailing_hybrid deepseek_v3 deepseek_v32 deepseek_v4 deepseek_v41 dots3_note ernie4_5_moe
    exaone_moe gemma4_assistant gemma4_unified_assistant glm5_next glm_moe_dsa hy_v3 hy_v4
    inkling_mm_model inkling_model intern_s2_preview interns2_mobius kimi_k3 longcat_flash
    longcat_flash_ngram minimax_m3_vl mtp pangu_ultra_moe qwen3_5 qwen3_5_moe qwen3_5_moe_text
    qwen3_5_text qwen3_next qwen4_exp qwen4_exp_text step3p5 step3p7
    """.split()  # noqa: SIM905
)
ARCHITECTURES = frozenset(
    """
    BailingMoeV2_5ForCausalLM BailingMoeV3ForCausalLM BailingMoeV3VLForConditionalGeneration
    Glm4MoeForCausalLM Glm4MoeLiteForCausalLM GlmOcrForConditionalGeneration MiMoForCausalLM
    MiMoV2FlashForCausalLM MiMoV2ForCausalLM MiMoV2OmniForCausalLM
    MiniMaxM3SparseForConditionalGeneration Step3p5ForCausalLM Step3p7ForConditionalGeneration
    """.split()  # noqa: SIM905
)
# These only with more than 0 MTP layers, which the two architectures count in their text part.
IF_COUNTED = ("nemotron_h", "nemotron_h_puzzle")
WITH_TEXT_PART = ("NemotronH_Super_Omni_Reasoning_V3", "NemotronH_Omni_Reasoning_V3")
