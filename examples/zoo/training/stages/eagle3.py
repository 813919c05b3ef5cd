"""The EAGLE-3 head, by distillation: its first draft, and at last its own loop."""

from __future__ import annotations

from pathlib import Path

from .. import export
from ..eagle3_fit import new_head, train_head
from ..loop import Recipe

RECIPE = Recipe(
    steps=680,
    batch_size=4,
    length=256,
    learning_rate=1e-3,
    seed=11,
    warmup=30,
    autocast=False,
    muon_learning_rate=4e-3,
)


def train(work: Path, out: Path, recipe: Recipe) -> None:
    """Train the EAGLE-3 head from its beginning."""
    target = export.load_target(out / "target")
    head = new_head(target, work, seed=10)
    last = recipe.steps * 3 // 4
    train_head("eagle3", head, target, work, out, recipe, pool_size=144, unroll_from=last)
