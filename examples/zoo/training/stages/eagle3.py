"""The EAGLE-3 head, by distillation over several steps of its own loop."""

from __future__ import annotations

from pathlib import Path

from .. import export
from ..eagle3_fit import new_head, train_head
from ..loop import Recipe

RECIPE = Recipe(
    steps=2000,
    batch_size=8,
    length=256,
    learning_rate=2e-3,
    seed=11,
    muon_learning_rate=4e-3,
)


def train(work: Path, out: Path, recipe: Recipe) -> None:
    """Train the EAGLE-3 head from its beginning."""
    target = export.load_target(out / "target")
    train_head("eagle3", new_head(target, work), target, work, out, recipe)
