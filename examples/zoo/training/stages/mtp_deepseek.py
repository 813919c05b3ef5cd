"""A DeepSeek with one MTP layer: the target by next-token prediction, the layer by distillation."""

from __future__ import annotations

from pathlib import Path

import torch

from .. import export
from ..loop import Recipe, record_curve
from ..mla import DeepSeek, LatentAttention, config, pair_table
from ..mtp_fit import fit_layer, fit_target, round_as_saved
from ..mtp_layer import MtpLayer
from ..shapes import DEEPSEEK

# Of the target; the layer has LAYER_SHARE of the steps.
RECIPE = Recipe(
    steps=400,
    batch_size=4,
    length=256,
    learning_rate=2e-3,
    seed=31,
    warmup=30,
    muon_learning_rate=4e-3,
)
LAYER_SHARE = 0.75
NAMES = {
    "embedding_norm": "enorm",
    "state_norm": "hnorm",
    "fuse": "eh_proj",
    "norm": "shared_head.norm",
}


def train(work: Path, out: Path, recipe: Recipe) -> None:
    """Train the target, then the layer, and write both."""
    target = DeepSeek(DEEPSEEK, seed=30)
    # The zoo's target has learnt these on the same text.
    target.embed_tokens.load_state_dict(
        export.load_target(out / "target").embed_tokens.state_dict()
    )
    record = fit_target("target_deepseek", target, target.layers, work, recipe)
    round_as_saved(target)
    layer = MtpLayer(DEEPSEEK, LatentAttention(DEEPSEEK), target.norm.weight, seed=32)
    rotation = pair_table(recipe.length - 1, DEEPSEEK.rope_dim)
    rest = recipe.scaled(LAYER_SHARE)
    of_layer = fit_layer("mtp_deepseek", layer, target, rotation, work, rest)
    export.save_weights(out / "target-deepseek", config(), state_of(target, layer))
    export.copy_tokenizer(work / "tokenizer", out / "target-deepseek")
    record_curve("target_deepseek", record, out)
    record_curve("mtp_deepseek", of_layer, out)


def state_of(target: DeepSeek, layer: MtpLayer) -> dict[str, torch.Tensor]:
    """Return the weights of both under DeepSeek's names: the layer comes after the target's."""
    state = {f"model.{name}": value for name, value in target.state_dict().items()}
    state["lm_head.weight"] = target.embed_tokens.weight
    for name, value in layer.state_dict().items():
        module, _, rest = name.partition(".")
        place = f"model.layers.{DEEPSEEK.layers}"
        state[f"{place}.{NAMES.get(module, module)}.{rest}"] = value
    return state
