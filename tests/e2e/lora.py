"""A LoRA adapter for the zoo's target: random, and large enough to change what it writes."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from tests.zoo import TARGET

RANK = 4
MODULES = ("q_proj", "v_proj")


def write_adapter(folder: Path, seed: int = 0, scale: float = 0.05) -> str:
    """Write an adapter in PEFT's layout and return its folder.

    Args:
        folder: where to.
        seed: of the weights.
        scale: standard deviation of both factors.
    """
    config = json.loads((Path(TARGET) / "config.json").read_text())
    hidden, head = config["hidden_size"], config["head_dim"]
    widths = {
        "q_proj": config["num_attention_heads"] * head,
        "v_proj": config["num_key_value_heads"] * head,
    }
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for module in MODULES:
            name = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            for factor, shape in (("A", (RANK, hidden)), ("B", (widths[module], RANK))):
                weight = torch.randn(shape, generator=generator) * scale
                tensors[f"{name}.lora_{factor}.weight"] = weight
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    adapter = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": TARGET,
        "r": RANK,
        "lora_alpha": 4 * RANK,
        "target_modules": list(MODULES),
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(adapter))
    return str(folder)
