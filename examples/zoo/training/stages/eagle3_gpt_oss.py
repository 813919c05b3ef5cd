"""A gpt-oss by next-token prediction, then its EAGLE-3 head by distillation."""

from __future__ import annotations

from pathlib import Path

from ..gpt_oss import config, new, published
from ..loop import Recipe
from ..mixture_fit import Pair, train_pair
from ..shapes import GPT_OSS_AUX_LAYERS

# Of the target.
RECIPE = Recipe(
    steps=500,
    batch_size=6,
    length=256,
    learning_rate=2e-3,
    seed=61,
    warmup=30,
    muon_learning_rate=4e-3,
)


def train(work: Path, out: Path, recipe: Recipe) -> None:
    """Train the target, then the head, and write both."""
    pair = Pair("gpt-oss", config(), published, GPT_OSS_AUX_LAYERS, head_share=0.7, seed=62)
    train_pair(pair, new(seed=60), work, out, recipe)
