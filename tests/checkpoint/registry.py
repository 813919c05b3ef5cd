"""A checkpoint of every family that vLLM lists under MTP, EAGLE and EAGLE-3: config and tensors.

What leads to a class stands in vllm/config/speculative.py:SpeculativeConfig.hf_config_override and
vllm/transformers_utils/configs/eagle.py:EAGLEConfig, the names of its tensors in the
``load_weights`` or the mapper of the class that vllm/model_executor/models/registry.py names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.config.checkpoints import LLAMA, VOCAB, eagle3_shapes, eagle_shapes
from tests.methods.mtp.models import DEEPSEEK, MIMO, shapes_of

LAYERS = 2
OWN_LOOP = "for whose MTP layers vLLM has a draft loop of its own"


@dataclass(frozen=True)
class Family:
    """A row of the registry.

    Attributes:
        method: that it is for.
        config: of a checkpoint that leads to it.
        names: of the tensors that the class loads for itself, without ``.weight``.
        said: what names them in the class's source.
        refused: part of the refusal where it is refused; empty where it is taken.
        shapes: of tensors where this package has a table of them; instead of ``names``.
    """

    method: str
    config: Mapping[str, Any]
    names: str = ""
    said: str = ""
    refused: str = ""
    shapes: Mapping[str, list[int]] = field(default_factory=dict)


def model(kind: str, architecture: str = "", **more: Any) -> dict[str, Any]:
    """Return the config of a model of ``model_type`` kind with one MTP layer."""
    one = {"num_hidden_layers": LAYERS, "num_nextn_predict_layers": 1}
    return {"model_type": kind, "architectures": [architecture or "ForCausalLM"], **one, **more}


def multimodal(kind: str, architecture: str = "", **text: Any) -> dict[str, Any]:
    """Return the config of a model whose text part stands apart."""
    inner = {"num_hidden_layers": LAYERS, "num_attention_heads": 2, **text}
    names = [architecture or "ForConditionalGeneration"]
    return {"model_type": kind, "architectures": names, "text_config": inner}


def head(architecture: str, **more: Any) -> dict[str, Any]:
    return {**LLAMA, "architectures": [architecture], **more}


def behind(stack: str = "model.layers") -> str:
    """Return names of a layer behind the model's own, as DeepSeek V3 has them."""
    layer = f"{stack}.{LAYERS}"
    return f"{layer}.eh_proj {layer}.enorm {layer}.hnorm {layer}.mlp.gate"


NUMBERED = "config.num_hidden_layers"
JOINED = "mtp.fc mtp.norm mtp.pre_fc_norm_hidden mtp.layers.0.mlp.gate_proj"
STARTS = 'name.startswith("mtp.")'
IDS = {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}
LLAMA3 = eagle3_shapes(LLAMA)
QWEN3 = {
    **LLAMA3,
    "layers.0.self_attn.q_norm.weight": [2],
    "layers.0.self_attn.k_norm.weight": [2],
}
OF_QWEN3 = {"model_type": "qwen3", "head_dim": 2}
OTHER3 = "fc midlayer.hidden_norm midlayer.input_layernorm midlayer.self_attn.q_proj norm"


def mtp(config: Mapping[str, Any], names: str, said: str, refused: str = "") -> Family:
    return Family("mtp", config, names, said, refused)


FAMILIES: dict[str, Family] = {
    # MTP
    "MiMoMTPModel": Family("mtp", MIMO, said="mtp_layers", shapes=shapes_of(MIMO)),
    "MiMoV2MTPModel": mtp(
        model("mimo_v2", "MiMoV2FlashForCausalLM"),
        "model.mtp.layers.0.eh_proj model.mtp.layers.0.enorm",
        '"model.mtp" not in name',
    ),
    "MiMoV2OmniMTPModel": mtp(
        model("mimo_v2", "MiMoV2OmniForCausalLM"),
        "model.mtp.layers.0.eh_proj model.mtp.layers.0.self_attn.qkv_proj",
        '"model.mtp" not in name',
    ),
    "DeepSeekMTPModel": Family("mtp", DEEPSEEK, said=NUMBERED, shapes=shapes_of(DEEPSEEK)),
    "DeepseekV32MTPModel": mtp(model("deepseek_v32"), behind(), NUMBERED),
    "DeepSeekV4MTPModel": mtp(
        model("deepseek_v4"), "mtp.0.e_proj mtp.0.h_proj mtp.0.ffn.gate", 'f"mtp.{mtp_layer_idx}."'
    ),
    "Dots3NoteMTPModel": mtp(
        model("dots3_note", layer_types=["full_attention"] * LAYERS),
        f"model.mtp.embed_tokens {behind()}",
        '"model.mtp.embed_tokens."',
    ),
    "BailingMoeV3MTPModel": mtp(
        model("bailing", "BailingMoeV3ForCausalLM"), behind(), 'startswith("model.layers.")'
    ),
    "BailingMoeV25MTPModel": mtp(model("bailing_hybrid"), behind(), 'startswith("model.layers.")'),
    "MiniMaxM3MTP": mtp(
        multimodal("minimax_m3_vl", num_mtp_modules=1),
        "language_model.model.mtp.layers.0.eh_proj",
        '"model.mtp.layers" in name',
    ),
    "InklingMTPModel": mtp(
        {
            **multimodal("inkling_mm_model"),
            "mtp_config": {"num_nextn_predict_layers": 1},
        },
        "model.mtp.layers.0.hidden_norm model.mtp.layers.0.input_proj",
        '".mtp.layers."',
    ),
    "Gemma4MTPModel": mtp(
        multimodal("gemma4_assistant"),
        "pre_projection post_projection model.layers.0.self_attn.q_proj",
        '"pre_projection."',
    ),
    "ErnieMTPModel": mtp(
        model("ernie4_5_moe"),
        "model.mtp_block.0.mlp.down_proj model.mtp_emb_norm.0 model.mtp_linear_proj.0",
        '"model.mtp_block.0."',
    ),
    "ExaoneMoeMTP": mtp(model("exaone_moe"), JOINED, STARTS),
    "Exaone4_5_MTP": mtp(multimodal("exaone4_5"), JOINED, STARTS),
    "NemotronHMTPModel": mtp(
        model("nemotron_h"), "mtp.layers.0.eh_proj mtp.layers.0.mixer.q_proj", '"mtp.layers."'
    ),
    "LongCatFlashMTPModel": mtp(
        model("longcat_flash"),
        "model.mtp.layers.0.eh_proj model.mtp.layers.0.transformer_layer.mlp.down_proj",
        '"model.mtp" in weight_name',
    ),
    "Glm4MoeMTPModel": mtp(model("glm4_moe", "Glm4MoeForCausalLM"), behind(), "eh_proj"),
    "Glm4MoeLiteMTPModel": mtp(
        model("glm4_moe_lite", "Glm4MoeLiteForCausalLM"), behind(), "eh_proj"
    ),
    "GlmOcrMTPModel": mtp(
        multimodal("glm_ocr", "GlmOcrForConditionalGeneration"),
        behind("model.language_model.layers"),
        '"model.language_model.layers"',
    ),
    "Glm5NextMTPModel": mtp(
        {**multimodal("glm5_next"), "num_nextn_predict_layers": 1},
        behind("model.language_model.layers"),
        '"model.language_model."',
    ),
    "OpenPanguMTPModel": mtp(model("pangu_ultra_moe"), behind(), NUMBERED),
    "Qwen3NextMTP": mtp(model("qwen3_next"), JOINED, STARTS),
    "Qwen4ExpMTP": mtp(
        model("qwen4_exp_text", hc_count=2), "mtp.fc_embedding mtp.fc_hidden", STARTS
    ),
    "Step3p5MTP": mtp(
        multimodal("step3p7", "Step3p7ForConditionalGeneration"), behind(), "eh_proj", OWN_LOOP
    ),
    "Qwen3_5MTP": mtp(multimodal("qwen3_5", mtp_num_hidden_layers=1), JOINED, STARTS),
    "Qwen3_5MoeMTP": mtp(model("qwen3_5_moe_text", mtp_num_hidden_layers=1), JOINED, STARTS),
    "InternS2MobiusMTP": mtp(
        multimodal("interns2_mobius", mtp_num_experts=2, mtp_num_experts_per_tok=1), JOINED, "mtp"
    ),
    "HYV3MTPModel": mtp(model("hy_v3"), behind(), NUMBERED),
    "HYV4MTPModel": mtp(
        model("hy_v4"), "model.mtp_layers.0.eh_proj", 'startswith("model.mtp_layers.")'
    ),
    "KimiK3MTPModel": mtp(
        multimodal("kimi_k3", num_nextn_predict_layers=1),
        behind("language_model.model.layers"),
        'startswith("language_model.")',
    ),
    # EAGLE
    "EagleLlamaForCausalLM": Family("eagle", LLAMA, said="self.fc =", shapes=eagle_shapes(LLAMA)),
    "EagleCohereForCausalLM": Family(
        "eagle", head("CohereForCausalLM"), "model.fc model.layers.0.mlp.up_proj", "self.fc ="
    ),
    "EagleLlama4ForCausalLM": Family(
        "eagle", head("Llama4ForCausalLM"), "fc layers.0.self_attn.q_proj", "self.fc ="
    ),
    "EagleMiniCPMForCausalLM": Family(
        "eagle", head("MiniCPMForCausalLM"), "model.fc model.input_norm1", "self.fc ="
    ),
    "EagleMistralForCausalLM": Family(
        "eagle", head("MistralForCausalLM"), "eagle_linear layers.0.attention.wq", '"eagle_linear"'
    ),
    "EagleMistralLarge3ForCausalLM": Family(
        "eagle",
        head("MistralLarge3ForCausalLM"),
        "eagle_linear layers.0.attention.wq_a",
        r"eagle_linear\.weight",
    ),
    "EagleDeepSeekMTPModel": Family(
        "eagle",
        model("deepseek_v3", vocab_size=VOCAB),
        "fc enorm hnorm layers.0.self_attn.q_a_proj",
        "self.fc =",
    ),
    # EAGLE-3
    "Eagle3LlamaForCausalLM": Family(
        "eagle3", head("LlamaForCausalLM", **IDS), said="self.hidden_norm =", shapes=LLAMA3
    ),
    "LlamaForCausalLMEagle3": Family(
        "eagle3", head("LlamaForCausalLMEagle3", **IDS), said="self.fc =", shapes=LLAMA3
    ),
    "PeagleLlamaForCausalLM": Family(
        "eagle3", head("PeagleLlamaForCausalLM", **IDS), said="mask_hidden", shapes=LLAMA3
    ),
    "PEagleDraftModel": Family(
        "eagle3", head("PEagleDraftModel", **IDS), said="mask_hidden", shapes=LLAMA3
    ),
    "Eagle3Qwen3ForCausalLM": Family(
        "eagle3", head("Qwen3ForCausalLM", **IDS, **OF_QWEN3), said="hidden_norm", shapes=QWEN3
    ),
    "PeagleQwen3ForCausalLM": Family(
        "eagle3",
        head("PeagleQwen3ForCausalLM", **IDS, **OF_QWEN3),
        said="mask_hidden",
        shapes=QWEN3,
    ),
    **{
        name: Family("eagle3", head(name, **IDS), OTHER3, "self.hidden_norm =")
        for name in (
            "Eagle3MiniMaxM2ForCausalLM",
            "Eagle3Qwen2_5vlForCausalLM",
            "Eagle3Qwen3vlForCausalLM",
            "Eagle3DeepseekV2ForCausalLM",
            "Eagle3DeepseekV3ForCausalLM",
        )
    },
}
# Reached by a config of the speculators library, which vLLM leaves as it is.
BY_SPECULATORS = ("PeagleLlamaForCausalLM", "PEagleDraftModel", "PeagleQwen3ForCausalLM")
