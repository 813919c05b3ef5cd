"""Tiny models with MTP layers, as their makers publish them: names and shapes of all tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.config.checkpoints import LLAMA, layer_shapes, llama_shapes

MIMO: dict[str, Any] = {
    **LLAMA,
    "architectures": ["MiMoForCausalLM"],
    "model_type": "qwen2",
    "num_nextn_predict_layers": 1,
}
DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "vocab_size": 16,
    "hidden_size": 4,
    "intermediate_size": 6,
    "num_hidden_layers": 1,
    "num_nextn_predict_layers": 1,
    "num_attention_heads": 2,
    "q_lora_rank": 3,
    "kv_lora_rank": 5,
    "qk_nope_head_dim": 2,
    "qk_rope_head_dim": 4,
    "v_head_dim": 3,
    "n_routed_experts": None,
    "tie_word_embeddings": False,
}
DEEPSEEK_EXPERTS: dict[str, Any] = {
    **DEEPSEEK,
    "q_lora_rank": None,
    "n_routed_experts": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 5,
    "first_k_dense_replace": 1,
    "topk_method": "noaux_tc",
}


def shapes_of(config: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the tensors of a model and of its MTP layers."""
    return _deepseek(config) if "kv_lora_rank" in config else _mimo(config)


def _mimo(config: Mapping[str, Any]) -> dict[str, list[int]]:
    hidden = config["hidden_size"]
    own = {
        **layer_shapes(config),
        **{f"self_attn.{part}_proj.bias": [rows] for part, rows in _qkv_rows(config).items()},
        **{f"{name}_layernorm.weight": [hidden] for name in ("token", "hidden", "final")},
        "input_proj.weight": [hidden, 2 * hidden],
    }
    shapes = llama_shapes(config)
    for layer in range(config["num_nextn_predict_layers"]):
        shapes |= {f"model.mtp_layers.{layer}.{name}": shape for name, shape in own.items()}
    return shapes


def _qkv_rows(config: Mapping[str, Any]) -> dict[str, int]:
    shapes = layer_shapes(config)
    return {part: shapes[f"self_attn.{part}_proj.weight"][0] for part in "qkv"}


def _deepseek(config: Mapping[str, Any]) -> dict[str, list[int]]:
    hidden, vocab, layers = (
        config[name] for name in ("hidden_size", "vocab_size", "num_hidden_layers")
    )
    shapes = {
        "model.embed_tokens.weight": [vocab, hidden],
        "model.norm.weight": [hidden],
        "lm_head.weight": [vocab, hidden],
    }
    for number in range(layers + config["num_nextn_predict_layers"]):
        own = {**_latent(config), **_mlp(config, number)}
        own |= {f"{n}_layernorm.weight": [hidden] for n in ("input", "post_attention")}
        if number >= layers:
            own |= {f"{name}.weight": [hidden] for name in ("enorm", "hnorm", "shared_head.norm")}
            own |= {
                f"{name}.weight": [vocab, hidden] for name in ("embed_tokens", "shared_head.head")
            }
            own["eh_proj.weight"] = [hidden, 2 * hidden]
        shapes |= {f"model.layers.{number}.{name}": shape for name, shape in own.items()}
    return shapes


def _latent(config: Mapping[str, Any]) -> dict[str, list[int]]:
    hidden, heads, rank = (
        config[name] for name in ("hidden_size", "num_attention_heads", "q_lora_rank")
    )
    nope, rope, value, latent = (
        config[name]
        for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank")
    )
    queries = {"q_proj": [heads * (nope + rope), hidden]}
    if rank is not None:
        queries = {
            "q_a_proj": [rank, hidden],
            "q_a_layernorm": [rank],
            "q_b_proj": [heads * (nope + rope), rank],
        }
    shapes = {
        **queries,
        "kv_a_proj_with_mqa": [latent + rope, hidden],
        "kv_a_layernorm": [latent],
        "kv_b_proj": [heads * (nope + value), latent],
        "o_proj": [hidden, heads * value],
    }
    return {f"self_attn.{name}.weight": shape for name, shape in shapes.items()}


def _mlp(config: Mapping[str, Any], number: int) -> dict[str, list[int]]:
    hidden = config["hidden_size"]
    if config["n_routed_experts"] is None or number < config["first_k_dense_replace"]:
        return _gated("mlp", config["intermediate_size"], hidden)
    shapes = {
        "mlp.gate.weight": [config["n_routed_experts"], hidden],
        "mlp.gate.e_score_correction_bias": [config["n_routed_experts"]],
    }
    inner = config["moe_intermediate_size"]
    for expert in range(config["n_routed_experts"]):
        shapes |= _gated(f"mlp.experts.{expert}", inner, hidden)
    return shapes | _gated("mlp.shared_experts", inner * config["n_shared_experts"], hidden)


def _gated(name: str, inner: int, hidden: int) -> dict[str, list[int]]:
    return {
        f"{name}.gate_proj.weight": [inner, hidden],
        f"{name}.up_proj.weight": [inner, hidden],
        f"{name}.down_proj.weight": [hidden, inner],
    }
