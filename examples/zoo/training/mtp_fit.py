"""What the stages of MTP layers share: how a target is trained, and the loss over their loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import nn

from . import corpus
from .llama import Rotation
from .loop import Recipe, fit
from .measure import held_out_figures, perplexity, windows
from .mtp_layer import MtpLayer
from .own_loop import Unrolled, distillation, loss_of, unroll

UNROLL = 2
DISTILLATION_WEIGHT = 0.3
# As in Switch Transformers (2101.03961).
BALANCE_WEIGHT = 0.01


class Target(Protocol):
    """What an MTP layer is trained beside; a module."""

    embed_tokens: torch.nn.Embedding

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the normed states [batch, length, hidden]."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yield the weights."""

    def states(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the states that the layer reads, and the normed ones, [batch, length, hidden]."""

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return logits [..., vocab_size] of ``hidden`` [..., hidden]."""


def fit_target(
    name: str,
    target: Target,
    layers: nn.Module,
    work: Path,
    recipe: Recipe,
    balanced: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]] | None = None,
) -> dict[str, Any]:
    """Train a target by next-token prediction; return the record.

    Args:
        name: of the stage.
        target: a module, whose call returns normed states.
        layers: its layers, whose matrices Muon trains.
        work: folder of the token streams.
        recipe: everything else.
        balanced: of a target with experts: returns the normed states, and its routers' loss.
    """

    @torch.compile
    def losses(tokens: torch.Tensor) -> list[torch.Tensor]:
        read = tokens[:, :-1]
        hidden, *more = balanced(read) if balanced else (target(read),)
        logits = target.logits(hidden).float().flatten(0, 1)
        return [F.cross_entropy(logits, tokens[:, 1:].flatten()), *more]

    def loss_fn(tokens: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
        loss, *more = found = losses(tokens)
        return loss + BALANCE_WEIGHT * sum(more), [each.item() for each in found]

    matrices = [p for p in layers.parameters() if p.ndim == 2]
    others = [p for p in target.parameters() if all(p is not matrix for matrix in matrices)]
    batches = windows(work, recipe)
    record = fit(name, others, loss_fn, batches.next, recipe, matrices)
    held_out = corpus.held_out_batches(work / "held.pt", recipe.length, 48)
    return {**record, "held_out": perplexity(target, held_out)}


def round_as_saved(target: nn.Module) -> None:
    """Freeze a target and round it as the checkpoint does: its layer must imitate that."""
    target.requires_grad_(False)
    for parameter in target.parameters():
        parameter.copy_(parameter.bfloat16())


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
    def unrolled(tokens: torch.Tensor) -> Unrolled:
        with torch.no_grad():
            read, hidden = target.states(tokens[:, :-1])
            goal = target.logits(hidden[:, 1:]).float()
            embeddings = target.embed_tokens(tokens[:, 1:-1])
        probabilities, choice = goal.softmax(-1), goal.argmax(-1)

        def judge(step: int, output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            logits = target.logits(output).float()
            distil = distillation(logits, probabilities, step)
            regress = F.smooth_l1_loss(output[:, step:].float(), hidden[:, 1 + step :].float())
            same = (logits.argmax(-1) == choice)[:, step:].float().mean()
            return DISTILLATION_WEIGHT * distil + regress, same

        return unroll(layer, UNROLL, embeddings, read[:, :-1], rotation, judge)

    loss_fn = loss_of(unrolled)
    batches = windows(work, recipe)
    matrices = [p for p in layer.parameters() if p.ndim > 1]
    vectors = [p for p in layer.parameters() if p.ndim < 2]
    record = fit(name, vectors, loss_fn, batches.next, recipe, matrices)
    held_out = corpus.held_out_batches(work / "held.pt", recipe.length, 48)
    return {**record, "held_out": held_out_figures(loss_fn, held_out)}
