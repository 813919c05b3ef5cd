"""A DeepSeek V3.2 with one MTP layer: the target, the layer, then the indexers of both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from .. import export
from ..index_fit import fit_indexers
from ..loop import Recipe, record_curve
from ..mla import pair_table
from ..mla_sparse import DeepSeekV32, Experts, SparseAttention, config_v32
from ..mtp_fit import fit_layer, fit_target, round_as_saved
from ..mtp_layer import MtpLayer
from ..shapes import DEEPSEEK_V32
from .mtp_deepseek import NAMES

# Of the target; the layer and the indexers have a share of the steps.
RECIPE = Recipe(
    steps=1000,
    batch_size=4,
    length=256,
    learning_rate=2e-3,
    seed=51,
    warmup=30,
    muon_learning_rate=4e-3,
)
LAYER_SHARE = 0.6
INDEXER_SHARE = 0.2
FOLDER = "target-deepseek-v32"


def train(work: Path, out: Path, recipe: Recipe) -> None:
    """Train everything and write it."""
    target = DeepSeekV32(DEEPSEEK_V32, seed=50)
    # The zoo's target has learnt these on the same text.
    target.embed_tokens.load_state_dict(
        export.load_target(out / "target").embed_tokens.state_dict()
    )
    record = fit_target("target_deepseek_v32", target, target.layers, work, recipe)
    round_as_saved(target)
    attention, experts = SparseAttention(DEEPSEEK_V32), Experts(DEEPSEEK_V32)
    layer = MtpLayer(DEEPSEEK_V32, attention, target.norm.weight, seed=52, mlp=experts)
    rotation = pair_table(recipe.length, DEEPSEEK_V32.rope_dim)
    first = (rotation[0][:-1], rotation[1][:-1])
    rest = recipe.scaled(LAYER_SHARE)
    of_layer = fit_layer("mtp_deepseek_v32", layer, target, first, work, rest)
    layer.requires_grad_(False)

    def run(tokens: torch.Tensor) -> None:
        read, _ = target.states(tokens[:, :-1])
        layer.step(target.embed_tokens(tokens[:, 1:-1]), read[:, :-1], first, [])

    attentions = [module for module in target.modules() if isinstance(module, SparseAttention)]
    aligned = replace(rest.scaled(INDEXER_SHARE / LAYER_SHARE), autocast=False)
    of_indexers = fit_indexers(
        "indexers_deepseek_v32", [*attentions, attention], run, rotation, work, aligned
    )
    export.save_weights(out / FOLDER, config_v32(), state_of(target, layer))
    export.copy_tokenizer(work / "tokenizer", out / FOLDER)
    record_curve("target_deepseek_v32", record, out)
    record_curve("mtp_deepseek_v32", of_layer, out)
    record_curve("indexers_deepseek_v32", of_indexers, out)


def state_of(target: nn.Module, layer: MtpLayer) -> dict[str, torch.Tensor]:
    """Return the weights of both under DeepSeek's names: the layer comes after the target's."""
    state = {f"model.{name}": value for name, value in target.state_dict().items()}
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    for name, value in layer.state_dict().items():
        module, _, rest = name.partition(".")
        place = f"model.layers.{DEEPSEEK_V32.layers}"
        state[f"{place}.{NAMES.get(module, module)}.{rest}"] = value
    return state
