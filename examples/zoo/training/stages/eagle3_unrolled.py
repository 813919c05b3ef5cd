"""The EAGLE-3 head again, over several steps of its own loop."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file

from .. import export
from ..eagle3_fit import new_head, train_head
from ..loop import Recipe

RECIPE = Recipe(
    steps=400,
    batch_size=4,
    length=256,
    learning_rate=5e-4,
    seed=12,
    warmup=20,
    autocast=False,
    muon_learning_rate=3e-3,
)


def train(work: Path, out: Path, recipe: Recipe) -> None:
    """Train the head that stage ``eagle3`` wrote further, on other text, and write it anew."""
    target = export.load_target(out / "target")
    head = new_head(target, work, seed=10)
    head.load_checkpoint(load_file(out / "eagle3" / "model.safetensors"))
    # Other text for every step: the stage before came back to the same.
    train_head("eagle3_unrolled", head, target, work, out, recipe, pool_size=recipe.steps)
