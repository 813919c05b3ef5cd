"""The EAGLE-3 head again, so that its later draft steps find what the first one finds."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file

from .. import export
from ..eagle3_fit import new_head, train_head
from ..loop import Recipe

RECIPE = Recipe(
    steps=600,
    batch_size=8,
    length=256,
    learning_rate=5e-4,
    seed=12,
    warmup=20,
    muon_learning_rate=1.5e-3,
)


def train(work: Path, out: Path, recipe: Recipe) -> None:
    """Train the head that stage ``eagle3`` wrote further, on other text, and write it anew."""
    target = export.load_target(out / "target")
    head = new_head(target, work)
    head.load_checkpoint(load_file(out / "eagle3" / "model.safetensors"))
    train_head("eagle3_aligned", head, target, work, out, recipe, alignment=0.05)
