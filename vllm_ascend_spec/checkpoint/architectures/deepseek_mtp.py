"""MTP layers of DeepSeek V3 after the target's, as vLLM 0.30's ``deepseek_mtp.py`` loads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm_ascend_spec.checkpoint import config_json
from vllm_ascend_spec.checkpoint.tensors import Shape, Table

ARCHITECTURES = ("DeepseekV3ForCausalLM", "DeepSeekMTPModel")
COUNT = "num_nextn_predict_layers"
HEADS = "num_attention_heads and the sizes of their parts"
EXPERTS = "n_routed_experts"


@dataclass(frozen=True)
class Sizes:
    """What decides the shapes of a layer; read from ``config.json``."""

    hidden: int
    heads: int
    nope: int
    rope: int
    value: int
    latent: int
    queries: int | None


def sizes_of(config: Mapping[str, Any]) -> Sizes:
    """Read the sizes of attention.

    Raises:
        InvalidCheckpointError: one is missing or not a size.
    """
    size = config_json.size
    return Sizes(
        hidden=size(config, "hidden_size"),
        heads=size(config, "num_attention_heads"),
        nope=size(config, "qk_nope_head_dim"),
        rope=size(config, "qk_rope_head_dim"),
        value=size(config, "v_head_dim"),
        latent=size(config, "kv_lora_rank"),
        queries=size(config, "q_lora_rank", None),
    )


def table_of(architecture: str, config: Mapping[str, Any]) -> Table | None:
    """Return the tensors of DeepSeek's MTP layers, or None for another architecture.

    Raises:
        InvalidCheckpointError: an entry of the config is missing or wrong.
    """
    if architecture not in ARCHITECTURES:
        return None
    sizes, layers = sizes_of(config), config_json.size(config, "num_hidden_layers")
    count, vocab = config_json.size(config, COUNT), config_json.size(config, "vocab_size")
    shared = Shape((vocab, sizes.hidden), "vocab_size and hidden_size")
    norm = Shape((sizes.hidden,), "hidden_size")
    joint = {
        "enorm.weight": norm,
        "hnorm.weight": norm,
        "eh_proj.weight": Shape((sizes.hidden, 2 * sizes.hidden), "hidden_size"),
        "shared_head.norm.weight": norm,
        "input_layernorm.weight": norm,
        "post_attention_layernorm.weight": norm,
    }
    return Table(
        name="DeepSeekMTP",
        outside={},
        stack="model.layers.",
        first=layers,
        layers=count,
        layer=lambda number: joint | _attention(sizes) | _mlp(config, number),
        # Copies of the target's, which some checkpoints have.
        optional={
            f"model.layers.{layers + number}.{name}.weight": shared
            for number in range(count)
            for name in ("embed_tokens", "shared_head.head")
        },
        count=COUNT,
    )


def _attention(sizes: Sizes) -> dict[str, Shape]:
    wide, inner = sizes.nope + sizes.rope, sizes.nope + sizes.value
    compressed = sizes.latent + sizes.rope
    shapes = {
        "kv_a_proj_with_mqa": ((compressed, sizes.hidden), "kv_lora_rank and qk_rope_head_dim"),
        "kv_a_layernorm": ((sizes.latent,), "kv_lora_rank"),
        "kv_b_proj": ((sizes.heads * inner, sizes.latent), HEADS),
        "o_proj": ((sizes.hidden, sizes.heads * sizes.value), HEADS),
    }
    if sizes.queries is None:
        shapes["q_proj"] = ((sizes.heads * wide, sizes.hidden), HEADS)
    else:
        shapes["q_a_proj"] = ((sizes.queries, sizes.hidden), "q_lora_rank")
        shapes["q_a_layernorm"] = ((sizes.queries,), "q_lora_rank")
        shapes["q_b_proj"] = ((sizes.heads * wide, sizes.queries), HEADS)
    return {f"self_attn.{name}.weight": Shape(*shape) for name, shape in shapes.items()}


def _mlp(config: Mapping[str, Any], number: int) -> dict[str, Shape]:
    """Return the tensors of a layer's MLP, or of its experts, as DeepSeek V3 has them."""
    hidden = config_json.size(config, "hidden_size")
    if not _has_experts(config, number):
        inner = config_json.size(config, "intermediate_size")
        return _gated("mlp", inner, hidden, "intermediate_size and hidden_size")
    count, inner = (
        config_json.size(config, EXPERTS),
        config_json.size(config, "moe_intermediate_size"),
    )
    why = "moe_intermediate_size and hidden_size"
    shapes = {"mlp.gate.weight": Shape((count, hidden), EXPERTS)}
    if config.get("topk_method") == "noaux_tc":
        shapes["mlp.gate.e_score_correction_bias"] = Shape((count,), EXPERTS)
    for expert in range(count):
        shapes |= _gated(f"mlp.experts.{expert}", inner, hidden, why)
    if shared := config.get("n_shared_experts"):
        shapes |= _gated("mlp.shared_experts", inner * shared, hidden, why)
    return shapes


def _has_experts(config: Mapping[str, Any], number: int) -> bool:
    return (
        config.get(EXPERTS) is not None
        and number >= config.get("first_k_dense_replace", 0)
        and number % config.get("moe_layer_freq", 1) == 0
    )


def _gated(name: str, inner: int, hidden: int, why: str) -> dict[str, Shape]:
    return {
        f"{name}.gate_proj.weight": Shape((inner, hidden), why),
        f"{name}.up_proj.weight": Shape((inner, hidden), why),
        f"{name}.down_proj.weight": Shape((hidden, inner), why),
    }
