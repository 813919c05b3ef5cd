"""Random mixtures of experts with a vocabulary of eight, whose copies run in step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.e2e.tiny import HEADS, VOCAB, WIDTH, drawn, layer_shapes, save, write_head
from tests.methods.mtp.models import shapes_of
from tests.zoo import ZOO

EXPERTS, CHOSEN = 4, 2
MIXTURE: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_experts": EXPERTS,
    "num_experts_per_tok": CHOSEN,
    "moe_intermediate_size": WIDTH,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": False,
}
# What differs from the zoo's, whose layers are dense.
DEEPSEEK: dict[str, Any] = {
    "vocab_size": VOCAB,
    "num_hidden_layers": 1,
    "n_routed_experts": EXPERTS,
    "num_experts_per_tok": CHOSEN,
    "first_k_dense_replace": 0,
    "dtype": "float32",
}


def write_mixture(folder: Path) -> str:
    """Write a Qwen3 of one layer of experts."""
    layer = {name: shape for name, shape in layer_shapes().items() if not name.startswith("mlp.")}
    for expert in range(EXPERTS):
        for part in ("gate", "up", "down"):
            layer[f"mlp.experts.{expert}.{part}_proj.weight"] = (WIDTH, WIDTH)
    layer |= {"mlp.gate.weight": (EXPERTS, WIDTH), "input_layernorm.weight": (WIDTH,)}
    layer |= {f"self_attn.{part}_norm.weight": (WIDTH // HEADS,) for part in "qk"}
    shapes = {
        "model.embed_tokens.weight": (VOCAB, WIDTH),
        "model.norm.weight": (WIDTH,),
        **{f"model.layers.0.{name}": shape for name, shape in layer.items()},
    }
    return save(folder, drawn(shapes, seed=0, scale=0.2), **MIXTURE)


def write_eagle(folder: Path) -> tuple[str, str]:
    """Write a mixture and a dense EAGLE head for it; return their folders.

    The head hands on the target's state, and so drafts the token before once more: such texts
    repeat themselves.
    """
    target = write_mixture(folder / "mixture")
    head = Path(write_head(folder / "eagle", target))
    weights = load_file(head / "model.safetensors")
    weights |= {name: weight / 10 for name, weight in weights.items() if "_proj" in name}
    weights["fc.weight"] = torch.eye(WIDTH, 2 * WIDTH).roll(WIDTH, dims=1)
    save_file(weights, head / "model.safetensors", {"format": "pt"})
    return target, str(head)


def zoo_eagle3(folder: Path) -> tuple[str, str]:
    """Return the folders of the zoo's Qwen3-MoE and of its dense EAGLE-3 head; writes nothing."""
    return str(ZOO / "target-qwen3-moe"), str(ZOO / "eagle3-qwen3-moe")


def zoo_sparse_mtp(folder: Path) -> tuple[str, str]:
    """Return the folder of the zoo's DeepSeek V3.2 twice, for its MTP layer; writes nothing.

    Two of its three layers, and the MTP layer, have experts.
    """
    return (str(ZOO / "target-deepseek-v32"),) * 2


def write_mtp(folder: Path) -> tuple[str, str]:
    """Write a DeepSeek and its MTP layer, both of experts; return the one folder twice."""
    config = json.loads((ZOO / "target-deepseek" / "config.json").read_text()) | DEEPSEEK
    shapes = {name: tuple(shape) for name, shape in shapes_of(config).items()}
    weights = drawn(shapes, seed=0, scale=0.2)
    for name, weight in weights.items():
        if name.endswith("e_score_correction_bias"):
            weight.zero_()
    # The MTP layer has what it shares with the model once more.
    own = f"model.layers.{config['num_hidden_layers']}."
    weights[f"{own}embed_tokens.weight"] = weights["model.embed_tokens.weight"].clone()
    weights[f"{own}shared_head.head.weight"] = weights["lm_head.weight"].clone()
    target = folder / "deepseek"
    target.mkdir(parents=True)
    save_file(weights, target / "model.safetensors", {"format": "pt"})
    (target / "config.json").write_text(json.dumps(config))
    return str(target), str(target)
