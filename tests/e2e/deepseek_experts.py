"""The zoo's DeepSeek with experts beside its MLPs, quantized: what guides serve as DeepSeek V3."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from examples.zoo.training import modelslim
from tests.zoo import ZOO

EXPERTS, CHOSEN = 4, 2
# The trained MLP is the expert that all tokens share, so that texts and drafts stay what they were.
OLD = re.compile(r"(model\.layers\.\d+\.mlp)\.(\w+_proj\.weight)")
EXPERTS_OF_V3: dict[str, Any] = {
    "first_k_dense_replace": 0,
    "n_routed_experts": EXPERTS,
    "num_experts_per_tok": CHOSEN,
    "n_shared_experts": 1,
    # As long as guides ask for; longer than the zoo's texts were.
    "max_position_embeddings": 40960,
}


def write(folder: Path) -> str:
    """Write the model in float into ``folder/float``, and quantized; return the latter's folder."""
    source, plain = ZOO / "target-deepseek", folder / "float"
    shutil.copytree(source, plain)
    config = json.loads((source / "config.json").read_text()) | EXPERTS_OF_V3
    config["moe_intermediate_size"] = config["intermediate_size"]
    torch.manual_seed(0)
    weights: dict[str, torch.Tensor] = {}
    for name, value in load_file(source / "model.safetensors").items():
        match = OLD.fullmatch(name)
        if match is None:
            weights[name] = value
            continue
        mlp, part = match.groups()
        weights[f"{mlp}.shared_experts.{part}"] = value
        for expert in range(EXPERTS):
            drawn = torch.randn(value.shape) * 0.05 * value.float().std()
            weights[f"{mlp}.experts.{expert}.{part}"] = drawn.to(value.dtype)
        weights[f"{mlp}.gate.weight"] = torch.randn(EXPERTS, config["hidden_size"]) * 0.05
        weights[f"{mlp}.gate.e_score_correction_bias"] = torch.zeros(EXPERTS)
    save_file(weights, plain / "model.safetensors", {"format": "pt"})
    (plain / "config.json").write_text(json.dumps(config))
    modelslim.quantize_dynamic(plain, folder / "quantized")
    return str(folder / "quantized")
