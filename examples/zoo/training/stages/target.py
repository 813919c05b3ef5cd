"""The target, by next-token prediction."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

from .. import corpus, export
from ..llama import Llama
from ..loop import Recipe, finish, fit
from ..measure import perplexity, windows
from ..shapes import TARGET

RECIPE = Recipe(steps=4200, batch_size=6, length=384, learning_rate=2e-3, seed=1)


def train(work: Path, out: Path, recipe: Recipe) -> None:
    """Train the target by next-token prediction."""
    model = Llama(TARGET, seed=0)
    print("parameters:", sum(p.numel() for p in model.parameters()), flush=True)
    held_out = corpus.held_out_batches(work / "held.pt", recipe.length)

    @torch.compile
    def cross_entropy(tokens: torch.Tensor) -> torch.Tensor:
        logits = model.logits(model(tokens[:, :-1])).float().flatten(0, 1)
        return F.cross_entropy(logits, tokens[:, 1:].flatten())

    def loss_fn(tokens: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
        loss = cross_entropy(tokens)
        return loss, [loss.item()]

    batches = windows(work, recipe)
    record = fit("target", list(model.parameters()), loss_fn, batches.next, recipe)
    state = {f"model.{k}": v for k, v in model.state_dict().items()}
    export.save(out / "target", work / "tokenizer", TARGET, state)
    finish("target", record, lambda: perplexity(model, held_out), out)
