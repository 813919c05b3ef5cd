"""gpt-oss: a window in every other layer, attention sinks, biases, experts with biases."""

from __future__ import annotations

from typing import Any

import torch
from transformers import GptOssConfig, GptOssModel

from .mixture import Mixture
from .shapes import END_OF_TEXT_ID, GPT_OSS, MAX_POSITIONS, NORM_EPS, ROPE_THETA, VOCAB_SIZE

# Prompts of the tests are longer, so layers with a window do forget.
WINDOW = 64
# As YaRN (2309.00071) stretches a context: twice as long as the shortest wave was made for.
STRETCH = 2.0


def config() -> dict[str, Any]:
    """Return the ``config.json`` of the zoo's gpt-oss."""
    shape = GPT_OSS
    kinds = ("sliding_attention", "full_attention")
    return {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "layer_types": [kinds[index % 2] for index in range(shape.layers)],
        "sliding_window": WINDOW,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "num_local_experts": shape.experts,
        "num_experts_per_tok": shape.chosen,
        "swiglu_limit": 7.0,
        "max_position_embeddings": MAX_POSITIONS,
        "initial_context_length": int(MAX_POSITIONS / STRETCH),
        "rms_norm_eps": NORM_EPS,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": ROPE_THETA,
            "factor": STRETCH,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": int(MAX_POSITIONS / STRETCH),
        },
        "hidden_act": "silu",
        # vLLM has no tied ones here, so the checkpoint has them twice.
        "tie_word_embeddings": False,
        "attention_bias": True,
        "bos_token_id": END_OF_TEXT_ID,
        "eos_token_id": END_OF_TEXT_ID,
        "pad_token_id": END_OF_TEXT_ID,
        "dtype": "bfloat16",
    }


def new(seed: int) -> Mixture:
    """Return the decoder with random weights."""
    settings = {k: v for k, v in config().items() if k not in ("architectures", "model_type")}
    return Mixture(GptOssConfig(**settings), GptOssModel, router="router", seed=seed)


def published(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the weights as published checkpoints have them: with an output layer of its own."""
    return state | {"lm_head.weight": state["model.embed_tokens.weight"]}
