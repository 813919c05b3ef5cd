"""Train heads that predict several tokens ahead of the target's last hidden state.

The target's states are worked out once and kept: its twelve layers cost more than the heads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from . import corpus
from .llama import Llama
from .loop import Recipe, fit

LATER_WEIGHT = 0.8
NUM_WINDOWS = 800
SEED = 11


class States:
    """Windows of tokens with the target's states of them.

    Attributes:
        tokens: int64 [num_windows, length + 1].
        hidden: bfloat16 [num_windows, length, hidden], normed, as the output layer reads them.
    """

    def __init__(self, target: Llama, tokens: torch.Tensor) -> None:
        self.tokens = tokens
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            parts = [target(part[:, :-1]).bfloat16() for part in tokens.split(8)]
        self.hidden = torch.cat(parts)


def training_states(target: Llama, work: Path, recipe: Recipe) -> States:
    """Return the states to learn from, and keep them in ``work`` for the next stage."""
    path = work / f"states-{NUM_WINDOWS}x{recipe.length}.pt"
    if not path.exists():
        batches = corpus.Windows(work / "train.pt", SEED, NUM_WINDOWS, recipe.length)
        torch.save(vars(States(target, batches.next())), path)
    found = States.__new__(States)
    vars(found).update(torch.load(path))
    return found


class Distillation:
    """The loss of heads that imitate the target's distribution at each of the tokens ahead.

    Args:
        output: the target's output layer, [vocab_size, hidden]; or the rows of some tokens.
        heads: called with states and the tokens that follow; returns the logits of each head.
        count: how many tokens ahead.
    """

    def __init__(self, output: torch.Tensor, heads: nn.Module, count: int) -> None:
        self._output = output.detach()
        self._heads = heads
        self._count = count

    def _distil(
        self,
        tokens: torch.Tensor,  # [num_windows, length + 1]
        hidden: torch.Tensor,  # [num_windows, length, hidden]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        length = hidden.shape[1] - self._count
        with torch.no_grad():
            goal = (hidden @ self._output.T).float().softmax(-1)
            choice = goal.argmax(-1)
        following = [tokens[:, 1 + i : 1 + i + length] for i in range(self._count)]
        total, agreements = torch.zeros(()), []
        for i, logits in enumerate(self._heads(hidden[:, :length], following)):
            ahead = slice(1 + i, 1 + i + length)
            loss = F.cross_entropy(logits.flatten(0, 1).float(), goal[:, ahead].flatten(0, 1))
            total = total + LATER_WEIGHT**i * loss
            agreements.append((logits.argmax(-1) == choice[:, ahead]).float().mean())
        return total, agreements

    def figures(self, states: States, rows: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
        """Return the loss of some windows, and it with the share of agreement of each head."""
        loss, agreements = self._distil(states.tokens[rows], states.hidden[rows])
        return loss, [loss.item(), *(share.item() for share in agreements)]


def fit_heads(
    name: str, target: Llama, loss: Distillation, heads: nn.Module, work: Path, recipe: Recipe
) -> dict[str, Any]:
    """Train heads and return the record."""
    states = training_states(target, work, recipe)
    generator = torch.Generator().manual_seed(recipe.seed)

    def next_rows() -> torch.Tensor:
        return torch.randperm(NUM_WINDOWS, generator=generator)[: recipe.batch_size]

    def loss_fn(rows: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
        return loss.figures(states, rows)

    return fit(name, list(heads.parameters()), loss_fn, next_rows, recipe)


def evaluate(target: Llama, loss: Distillation, work: Path, recipe: Recipe) -> dict[str, float]:
    """Return loss and agreement, head by head, on held-out windows."""
    states = States(target, torch.cat(corpus.held_out_batches(work / "held.pt", recipe.length, 48)))
    rows = torch.arange(len(states.tokens)).split(recipe.batch_size)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = [loss.figures(states, part)[1] for part in rows if len(part) == recipe.batch_size]
    means = torch.tensor(found).mean(0).tolist()
    names = ["loss", *(f"agreement_{i}" for i in range(1, len(means)))]
    return {name: round(value, 4) for name, value in zip(names, means, strict=True)}
