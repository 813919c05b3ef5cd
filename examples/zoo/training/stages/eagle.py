"""The EAGLE head, over several steps of its own loop."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

from .. import corpus, export
from ..eagle_head import EagleHead
from ..llama import rotary_table
from ..loop import Recipe, finish, fit
from ..measure import held_out_figures, windows
from ..own_loop import Unrolled, distillation, loss_of, unroll
from ..shapes import EAGLE

RECIPE = Recipe(steps=2400, batch_size=8, length=256, learning_rate=2e-3, seed=7)
UNROLL = 3
REGRESSION_WEIGHT = 1.0
DISTILLATION_WEIGHT = 0.3


def train(work: Path, out: Path, recipe: Recipe) -> None:
    """Train the EAGLE head over ``UNROLL`` steps of its own loop (regression + distillation)."""
    target, head = export.load_target(out / "target"), EagleHead(EAGLE, seed=4)
    held_out = corpus.held_out_batches(work / "held.pt", recipe.length)

    @torch.compile
    def unrolled(tokens: torch.Tensor) -> Unrolled:
        with torch.no_grad():
            hidden = target(tokens[:, :-1])
            goal = target.logits(hidden[:, 1:]).float()
            embeddings = target.embed_tokens(tokens[:, 1:-1])
        probabilities, choice = goal.softmax(-1), goal.argmax(-1)
        rotation = rotary_table(embeddings.shape[1], EAGLE.head_dim)

        def judge(step: int, output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            logits = target.logits(output).float()
            distil = distillation(logits, probabilities, step)
            regress = F.smooth_l1_loss(output[:, step:].float(), hidden[:, 1 + step :].float())
            same = (logits.argmax(-1) == choice)[:, step:].float().mean()
            return DISTILLATION_WEIGHT * distil + REGRESSION_WEIGHT * regress, same

        return unroll(head, UNROLL, embeddings, hidden[:, :-1], rotation, judge)

    loss_fn = loss_of(unrolled)
    batches = windows(work, recipe)
    record = fit("eagle", list(head.parameters()), loss_fn, batches.next, recipe)
    state = {
        (name if name.startswith("fc.") else f"layers.0.{name}"): value
        for name, value in head.state_dict().items()
    }
    state["embed_tokens.weight"] = target.embed_tokens.weight
    export.save(out / "eagle", work / "tokenizer", EAGLE, state)
    finish("eagle", record, lambda: held_out_figures(loss_fn, held_out), out)
