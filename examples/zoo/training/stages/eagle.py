"""The EAGLE head, over several steps of its own loop."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

from .. import corpus, export
from ..eagle_head import EagleHead
from ..llama import rotary_table
from ..loop import Recipe, finish, fit
from ..measure import windows
from ..shapes import EAGLE

RECIPE = Recipe(steps=2400, batch_size=8, length=256, learning_rate=2e-3, seed=7)
UNROLL = 3
LATER_STEP_WEIGHT = 0.8
REGRESSION_WEIGHT = 1.0
DISTILLATION_WEIGHT = 0.3


def train(work: Path, out: Path, recipe: Recipe) -> None:
    """Train the EAGLE head over ``UNROLL`` steps of its own loop (regression + distillation)."""
    target, head = export.load_target(out / "target"), EagleHead(EAGLE, seed=4)
    held_out = corpus.held_out_batches(work / "held.pt", recipe.length)

    @torch.compile
    def unrolled(tokens: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        with torch.no_grad():
            hidden = target(tokens[:, :-1])
            goal = target.logits(hidden[:, 1:]).float()
            embeddings = target.embed_tokens(tokens[:, 1:-1])
        probabilities, choice = goal.softmax(-1), goal.argmax(-1)
        features, rotation = hidden[:, :-1], rotary_table(embeddings.shape[1], EAGLE.head_dim)
        steps: list = []
        total, agreements = torch.zeros(()), []
        for step in range(UNROLL):
            output = head.step(embeddings, features, rotation, steps)
            logits = target.logits(output).float()
            distil = -(probabilities * logits.log_softmax(-1)).sum(-1)[:, step:].mean()
            regress = F.smooth_l1_loss(output[:, step:].float(), hidden[:, 1 + step :].float())
            loss = DISTILLATION_WEIGHT * distil + REGRESSION_WEIGHT * regress
            total = total + LATER_STEP_WEIGHT**step * loss
            agreements.append((logits.argmax(-1) == choice)[:, step:].float().mean())
            features = torch.cat([features[:, :1], output[:, :-1]], 1)
        return total, agreements

    def loss_fn(tokens: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
        loss, agreements = unrolled(tokens)
        return loss, [loss.item(), *(a.item() for a in agreements)]

    @torch.no_grad()
    def evaluate() -> dict[str, float]:
        figures = torch.tensor([loss_fn(tokens)[1] for tokens in held_out]).mean(0).tolist()
        names = ["loss", *(f"agreement_{step + 1}" for step in range(UNROLL))]
        return {name: round(value, 4) for name, value in zip(names, figures, strict=True)}

    batches = windows(work, recipe)
    record = fit("eagle", list(head.parameters()), loss_fn, batches.next, recipe)
    state = {
        (name if name.startswith("fc.") else f"layers.0.{name}"): value
        for name, value in head.state_dict().items()
    }
    state["embed_tokens.weight"] = target.embed_tokens.weight
    export.save(out / "eagle", work / "tokenizer", EAGLE, state)
    finish("eagle", record, evaluate, out)
