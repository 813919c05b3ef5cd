"""Medusa's heads, by distillation of the target's distribution at each token ahead."""

from __future__ import annotations

from pathlib import Path

import torch

from .. import export
from ..ahead import Distillation, evaluate, fit_heads
from ..loop import Recipe, finish
from ..medusa_heads import MedusaHeads
from ..shapes import TARGET, VOCAB_SIZE

RECIPE = Recipe(steps=400, batch_size=6, length=256, learning_rate=1e-3, seed=11, warmup=30)
HEADS, LAYERS = 4, 2
# The most frequent tokens of the corpus are drafted alone: a quarter of the vocabulary.
DRAFTED = 1024
CONFIG = {
    "architectures": ["MedusaModel"],
    "model_type": "medusa",
    "hidden_size": TARGET.hidden,
    "vocab_size": VOCAB_SIZE,
    "truncated_vocab_size": DRAFTED,
    "num_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "original_lm_head": True,
    "dtype": "bfloat16",
}


def frequent(work: Path) -> torch.Tensor:
    """Return the tokens that can be drafted, int64 [DRAFTED], in rising order."""
    counts = torch.bincount(torch.load(work / "train.pt").long(), minlength=VOCAB_SIZE)
    return counts.topk(DRAFTED).indices.sort().values


def train(work: Path, out: Path, recipe: Recipe) -> None:
    """Train four heads of two residual layers and the output layer that they share."""
    target, tokens = export.load_target(out / "target"), frequent(work)
    output = target.embed_tokens.weight[tokens].clone()
    heads = MedusaHeads(HEADS, LAYERS, output)
    loss = Distillation(output, heads, HEADS)
    record = fit_heads("medusa", target, loss, heads, work, recipe)
    export.save_weights(out / "medusa", CONFIG, {**heads.state_dict(), "token_map": tokens})
    finish("medusa", record, lambda: evaluate(target, loss, work, recipe), out)
