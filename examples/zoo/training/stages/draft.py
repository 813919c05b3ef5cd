"""The one-layer draft model, by distillation of the target's distribution."""

from __future__ import annotations

from pathlib import Path

import torch

from .. import corpus, export
from ..llama import Llama
from ..loop import Recipe, finish, fit
from ..measure import perplexity, windows
from ..shapes import DRAFT

RECIPE = Recipe(steps=1500, batch_size=8, length=256, learning_rate=3e-3, seed=3)


def train(work: Path, out: Path, recipe: Recipe) -> None:
    """Train the one-layer draft model to imitate the target's distribution."""
    target, model = export.load_target(out / "target"), Llama(DRAFT, seed=2)
    # The target's embeddings are a far better start than noise for a model of the same width.
    model.embed_tokens.load_state_dict(target.embed_tokens.state_dict())
    held_out = corpus.held_out_batches(work / "held.pt", recipe.length)

    @torch.compile
    def distillation(tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            goal = target.logits(target(tokens[:, :-1])).float()
        logits = model.logits(model(tokens[:, :-1])).float()
        loss = -(goal.softmax(-1) * logits.log_softmax(-1)).sum(-1).mean()
        return loss, (logits.argmax(-1) == goal.argmax(-1)).float().mean()

    def loss_fn(tokens: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
        loss, agreement = distillation(tokens)
        return loss, [loss.item(), agreement.item()]

    batches = windows(work, recipe)
    record = fit("draft", list(model.parameters()), loss_fn, batches.next, recipe)
    state = {f"model.{k}": v for k, v in model.state_dict().items()}
    export.save(out / "draft", work / "tokenizer", DRAFT, state)
    finish("draft", record, lambda: perplexity(model, held_out), out)
