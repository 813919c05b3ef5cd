"""Read and write checkpoints in the layout that vLLM and transformers load."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from .llama import Llama
from .shapes import (
    END_OF_TEXT_ID,
    MAX_POSITIONS,
    NORM_EPS,
    ROPE_THETA,
    TARGET,
    VOCAB_SIZE,
    Shape,
)


def hf_config(shape: Shape) -> dict[str, Any]:
    """Return the ``config.json`` of a Llama of this shape."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": MAX_POSITIONS,
        "rms_norm_eps": NORM_EPS,
        "rope_theta": ROPE_THETA,
        "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_THETA},
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": END_OF_TEXT_ID,
        "eos_token_id": END_OF_TEXT_ID,
        "pad_token_id": END_OF_TEXT_ID,
        "attention_bias": False,
        "mlp_bias": False,
        "dtype": "bfloat16",
    }


def save_weights(folder: Path, config: dict[str, Any], state: dict[str, torch.Tensor]) -> None:
    """Write weights (bfloat16 safetensors) and config to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        k: (v.detach().to(torch.bfloat16) if v.is_floating_point() else v).contiguous().clone()
        for k, v in state.items()
    }
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def save(
    folder: Path, tokenizer: Path, shape: Shape, state: dict[str, torch.Tensor], **settings: Any
) -> None:
    """Write weights (bfloat16 safetensors), config and tokenizer to ``folder``.

    Args:
        folder: of the checkpoint.
        tokenizer: folder of the tokenizer.
        shape: of the decoder.
        state: its weights.
        settings: further entries of the config.
    """
    save_weights(folder, hf_config(shape) | settings, state)
    copy_tokenizer(tokenizer, folder)


def copy_tokenizer(tokenizer: Path, folder: Path) -> None:
    """Copy the files of a tokenizer's folder to a checkpoint's."""
    for path in tokenizer.iterdir():
        shutil.copy(path, folder / path.name)


def load_target(folder: Path) -> Llama:
    """Load the target as it was rounded for saving: the drafts must imitate that model."""
    model = Llama(TARGET, seed=0)
    state = load_file(folder / "model.safetensors")
    model.load_state_dict({k.removeprefix("model."): v.float() for k, v in state.items()})
    return model.requires_grad_(False).eval()
