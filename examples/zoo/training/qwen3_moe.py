"""Qwen3-MoE: attention with normed heads, and experts in each layer instead of an MLP."""

from __future__ import annotations

from typing import Any

import torch
from transformers import Qwen3MoeConfig, Qwen3MoeModel

from .mixture import Mixture
from .shapes import END_OF_TEXT_ID, MAX_POSITIONS, NORM_EPS, QWEN3_MOE, ROPE_THETA, VOCAB_SIZE


def config() -> dict[str, Any]:
    """Return the ``config.json`` of the zoo's Qwen3-MoE."""
    shape = QWEN3_MOE
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate * shape.chosen,
        "moe_intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "num_experts": shape.experts,
        "num_experts_per_tok": shape.chosen,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "max_position_embeddings": MAX_POSITIONS,
        "rms_norm_eps": NORM_EPS,
        "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_THETA},
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "attention_bias": False,
        "bos_token_id": END_OF_TEXT_ID,
        "eos_token_id": END_OF_TEXT_ID,
        "pad_token_id": END_OF_TEXT_ID,
        "dtype": "bfloat16",
    }


def new(seed: int) -> Mixture:
    """Return the decoder with random weights."""
    settings = {k: v for k, v in config().items() if k not in ("architectures", "model_type")}
    return Mixture(Qwen3MoeConfig(**settings), Qwen3MoeModel, router="gate", seed=seed)


def published(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the weights as published checkpoints have them: each expert has its own."""
    named = {}
    for name, value in state.items():
        place, _, kind = name.rpartition(".experts.")
        if not place:
            named[name] = value
            continue
        for expert, weight in enumerate(value):
            parts = weight.chunk(2) if kind == "gate_up_proj" else (weight,)
            names = ("gate_proj", "up_proj") if kind == "gate_up_proj" else (kind,)
            for part, what in zip(parts, names, strict=True):
                named[f"{place}.experts.{expert}.{what}.weight"] = part
    return named
