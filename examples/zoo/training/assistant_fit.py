"""How Gemma 4's assistant is trained: every position drafts ``UNROLL`` tokens without moving on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from . import corpus
from .gemma4 import Assistant, Gemma4
from .loop import Recipe, fit
from .measure import held_out_figures, windows
from .own_loop import LATER_STEP_WEIGHT, Unrolled, loss_of

UNROLL = 3
REGRESSION_WEIGHT = 0.3


def fit_assistant(
    name: str, assistant: Assistant, target: Gemma4, work: Path, recipe: Recipe
) -> dict[str, Any]:
    """Train an assistant over ``UNROLL`` steps of its loop (distillation + regression).

    Each step reads the right token and what the step before has made of the target's state; the
    position, and the keys and values that it attends to, stay.

    Args:
        name: of the stage.
        assistant: to be trained.
        target: frozen.
        work: folder of the token streams.
        recipe: everything else.
    """
    drafting = recipe.length - UNROLL  # positions whose drafts all have a right token

    @torch.compile
    def unrolled(tokens: torch.Tensor) -> Unrolled:
        with torch.no_grad():
            hidden, keys = target.with_keys(tokens[:, :-1])
            goal = target.logits(hidden).float()
            embeddings = target.embed_tokens(tokens[:, :-1])
        probabilities, choice = goal.softmax(-1), goal.argmax(-1)
        known = {kind: tuple(each[:, :, :drafting] for each in pair) for kind, pair in keys.items()}
        states = hidden[:, :drafting]
        total, agreements = torch.zeros(()), []
        for step in range(UNROLL):
            there = slice(step + 1, step + 1 + drafting)
            logits, states = assistant.step(embeddings[:, there], states, known)
            logits = logits.float()
            distil = -(probabilities[:, there] * logits.log_softmax(-1)).sum(-1).mean()
            regress = F.smooth_l1_loss(states.float(), hidden[:, there].float())
            total = total + LATER_STEP_WEIGHT**step * (distil + REGRESSION_WEIGHT * regress)
            agreements.append((logits.argmax(-1) == choice[:, there]).float().mean())
        return total, agreements

    loss_fn = loss_of(unrolled)
    inner = [
        *assistant.whole.model.layers.parameters(),
        assistant.whole.pre_projection.weight,
        assistant.whole.post_projection.weight,
    ]
    matrices = [p for p in inner if p.ndim > 1]
    others = [p for p in assistant.parameters() if all(p is not matrix for matrix in matrices)]
    record = fit(name, others, loss_fn, windows(work, recipe).next, recipe, matrices)
    held_out = corpus.held_out_batches(work / "held.pt", recipe.length, 48)
    return {**record, "held_out": held_out_figures(loss_fn, held_out)}
