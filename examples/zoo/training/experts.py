"""Put experts beside the MLPs of a DeepSeek without any, so that it is what DeepSeek V3 is.

The trained MLP becomes the experts that all tokens share; those that a router chooses are random
and small, so texts and drafts stay about what they were.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

MLP = re.compile(r"(model\.layers\.\d+\.mlp)\.(\w+)_proj\.weight")
EXPERTS, CHOSEN, WIDTH = 4, 2, 64
# What they write, over what the shared experts do.
SHARE = 0.05
# As long as guides ask DeepSeek V3 to be; the zoo's texts are shorter.
LONGEST = 40960


def add_experts(source: Path, target: Path) -> None:
    """Write ``source`` with experts into ``target``.

    Args:
        source: folder of a DeepSeek whose layers have no experts.
        target: folder to write.
    """
    shutil.copytree(source, target)
    config = json.loads((source / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | _described(config), indent=2) + "\n")
    drawn = torch.Generator().manual_seed(0)
    weights: dict[str, torch.Tensor] = {}
    for name, value in load_file(source / "model.safetensors").items():
        match = MLP.fullmatch(name)
        if match is None:
            weights[name] = value
            continue
        mlp, part = match.groups()
        weights[f"{mlp}.shared_experts.{part}_proj.weight"] = value
        shape = (config["hidden_size"], WIDTH) if part == "down" else (WIDTH, config["hidden_size"])
        for expert in range(EXPERTS):
            random = torch.randn(shape, generator=drawn) * SHARE * value.float().std()
            weights[f"{mlp}.experts.{expert}.{part}_proj.weight"] = random.to(value.dtype)
        if part == "gate":
            router = torch.randn(EXPERTS, config["hidden_size"], generator=drawn) * SHARE
            weights[f"{mlp}.gate.weight"] = router.to(value.dtype)
            weights[f"{mlp}.gate.e_score_correction_bias"] = torch.zeros(EXPERTS)
    save_file(weights, target / "model.safetensors", {"format": "pt"})


def _described(config: dict[str, Any]) -> dict[str, Any]:
    """Return what the configuration says of the experts."""
    return {
        "first_k_dense_replace": 0,
        "n_routed_experts": EXPERTS,
        "num_experts_per_tok": CHOSEN,
        "moe_intermediate_size": WIDTH,
        "n_shared_experts": config["intermediate_size"] // WIDTH,
        "max_position_embeddings": LONGEST,
    }
