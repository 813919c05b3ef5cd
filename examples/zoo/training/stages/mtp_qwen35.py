"""A Qwen3.5 with one MTP layer: the target by next-token prediction, the layer by distillation."""

from __future__ import annotations

from pathlib import Path

from .. import export
from ..loop import Recipe, record_curve
from ..mtp_fit import fit_layer, fit_target, round_as_saved
from ..mtp_layer import MtpLayer
from ..qwen35 import GatedAttention, Qwen35, config, names_of_layer, rotation_of
from ..shapes import QWEN35

# Of the target; the layer has LAYER_SHARE of the steps.
RECIPE = Recipe(
    steps=400,
    batch_size=6,
    length=256,
    learning_rate=2e-3,
    seed=41,
    warmup=30,
    muon_learning_rate=4e-3,
)
LAYER_SHARE = 0.75


def train(work: Path, out: Path, recipe: Recipe) -> None:
    """Train the target, then the layer, and write both."""
    target = Qwen35(seed=40)
    # The zoo's target has learnt these on the same text.
    target.embed_tokens.load_state_dict(
        export.load_target(out / "target").embed_tokens.state_dict()
    )
    record = fit_target("target_qwen35", target, target.model.layers, work, recipe)
    round_as_saved(target)
    # Qwen3.5's norms multiply by 1 + weight.
    final_norm = 1 + target.model.norm.weight
    layer = MtpLayer(QWEN35, GatedAttention(), final_norm, seed=42, masks_first=False)
    rest = recipe.scaled(LAYER_SHARE)
    of_layer = fit_layer("mtp_qwen35", layer, target, rotation_of(recipe.length - 1), work, rest)
    state = {f"model.{name}": value for name, value in target.model.state_dict().items()}
    folder = out / "target-qwen35"
    export.save_weights(folder, config(), state | names_of_layer(layer))
    export.copy_tokenizer(work / "tokenizer", folder)
    record_curve("target_qwen35", record, out)
    record_curve("mtp_qwen35", of_layer, out)
