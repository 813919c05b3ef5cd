"""What the stages of the MTP layers share: the loss over the layer's own loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F

from . import corpus
from .llama import Rotation
from .loop import Recipe, fit
from .measure import windows
from .mtp_layer import MtpLayer

UNROLL = 2
LATER_STEP_WEIGHT = 0.8
DISTILLATION_WEIGHT = 0.3


class Target(Protocol):
    """What an MTP layer is trained beside."""

    embed_tokens: torch.nn.Embedding

    def states(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the states that the layer reads, and the normed ones, [batch, length, hidden]."""

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return logits [..., vocab_size] of ``hidden`` [..., hidden]."""


def fit_layer(
    name: str, layer: MtpLayer, target: Target, rotation: Rotation, work: Path, recipe: Recipe
) -> dict[str, Any]:
    """Train a layer over ``UNROLL`` steps of its loop (regression + distillation).

    Args:
        name: of the stage.
        layer: to be trained.
        target: frozen.
        rotation: rotary table of ``recipe.length - 1`` positions.
        work: folder of the token streams.
        recipe: everything else.
    """

    @torch.compile
    def unrolled(tokens: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        with torch.no_grad():
            read, hidden = target.states(tokens[:, :-1])
            goal = target.logits(hidden[:, 1:]).float()
            embeddings = target.embed_tokens(tokens[:, 1:-1])
        probabilities, choice = goal.softmax(-1), goal.argmax(-1)
        states, steps = read[:, :-1], []
        total, agreements = torch.zeros(()), []
        for step in range(UNROLL):
            output = layer.step(embeddings, states, rotation, steps)
            logits = target.logits(output).float()
            distil = -(probabilities * logits.log_softmax(-1)).sum(-1)[:, step:].mean()
            regress = F.smooth_l1_loss(output[:, step:].float(), hidden[:, 1 + step :].float())
            total = total + LATER_STEP_WEIGHT**step * (DISTILLATION_WEIGHT * distil + regress)
            agreements.append((logits.argmax(-1) == choice)[:, step:].float().mean())
            states = torch.cat([states[:, :1], output[:, :-1]], 1)
        return total, agreements

    def loss_fn(tokens: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
        loss, agreements = unrolled(tokens)
        return loss, [loss.item(), *(a.item() for a in agreements)]

    @torch.no_grad()
    def evaluate() -> dict[str, float]:
        held_out = corpus.held_out_batches(work / "held.pt", recipe.length, 48)
        figures = torch.tensor([loss_fn(tokens)[1] for tokens in held_out]).mean(0).tolist()
        names = ["loss", *(f"agreement_{step + 1}" for step in range(UNROLL))]
        return {key: round(value, 4) for key, value in zip(names, figures, strict=True)}

    batches = windows(work, recipe)
    matrices = [p for p in layer.parameters() if p.ndim > 1]
    vectors = [p for p in layer.parameters() if p.ndim < 2]
    record = fit(name, vectors, loss_fn, batches.next, recipe, matrices)
    return {**record, "held_out": evaluate()}
