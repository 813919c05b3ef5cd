"""A head's own loop in training: each step reads what the step before has made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from .eagle_head import KeyValue
from .llama import Rotation
from .loop import LossFn

LATER_STEP_WEIGHT = 0.8
# Of a batch: the loss, and at each step the share of positions where head and target agree.
Unrolled = tuple[torch.Tensor, list[torch.Tensor]]


class Head(Protocol):
    """What drafts one token after the other."""

    def step(
        self,
        embeddings: torch.Tensor,  # [batch, length, hidden]
        features: torch.Tensor,  # [batch, length, hidden]
        rotation: Rotation,
        steps: list[KeyValue],
        /,
    ) -> torch.Tensor:
        """Return the outputs [batch, length, hidden] of a step, and keep its keys and values."""


def unroll(
    head: Head,
    num_steps: int,
    embeddings: torch.Tensor,  # [batch, length, hidden]
    features: torch.Tensor,  # [batch, length, hidden]
    rotation: Rotation,
    judge: Callable[[int, torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
) -> Unrolled:
    """Run a head on its own outputs and sum up what its steps lose; later ones count less.

    Args:
        head: to be trained.
        num_steps: how many steps.
        embeddings: of the token after each position.
        features: of the target, which the first step reads.
        rotation: rotary table of ``length`` positions.
        judge: returns loss and agreement of a step, counted from 0, with its outputs.
    """
    total, agreements, kept = torch.zeros(()), [], []
    for step in range(num_steps):
        output = head.step(embeddings, features, rotation, kept)
        loss, agreement = judge(step, output)
        total = total + LATER_STEP_WEIGHT**step * loss
        agreements.append(agreement)
        features = torch.cat([features[:, :1], output[:, :-1]], 1)
    return total, agreements


def distillation(
    logits: torch.Tensor,  # [batch, length, vocabulary], float32
    probabilities: torch.Tensor,  # the same
    step: int,
) -> torch.Tensor:
    """Return the cross entropy to the target where a step has seen its own outputs."""
    return -(probabilities * logits.log_softmax(-1)).sum(-1)[:, step:].mean()


def loss_of(unrolled: Callable[[torch.Tensor], Unrolled]) -> LossFn:
    """Return a loss whose figures are itself and the agreement of each step."""

    def loss_fn(tokens: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
        loss, agreements = unrolled(tokens)
        return loss, [loss.item(), *(a.item() for a in agreements)]

    return loss_fn
