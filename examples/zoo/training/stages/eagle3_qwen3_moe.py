"""A Qwen3-MoE by next-token prediction, then its EAGLE-3 head by distillation."""

from __future__ import annotations

from pathlib import Path

from ..loop import Recipe
from ..mixture_fit import Pair, train_pair
from ..qwen3_moe import config, new, published
from ..shapes import QWEN3_MOE_AUX_LAYERS

# Of the target.
RECIPE = Recipe(
    steps=500,
    batch_size=6,
    length=256,
    learning_rate=2e-3,
    seed=51,
    warmup=30,
    muon_learning_rate=4e-3,
)


def train(work: Path, out: Path, recipe: Recipe) -> None:
    """Train the target, then the head, and write both."""
    pair = Pair("qwen3-moe", config(), published, QWEN3_MOE_AUX_LAYERS, head_share=0.7, seed=52)
    train_pair(pair, new(seed=50), work, out, recipe)
