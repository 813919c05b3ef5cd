"""What every stage of the training needs: its batches, and how good a model is on held-out text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F

from . import corpus
from .llama import Llama
from .loop import LossFn, Recipe


@torch.no_grad()
def perplexity(model: Llama, batches: list[torch.Tensor]) -> dict[str, float]:
    """Return loss (nats per token) and perplexity over ``batches`` [≤ 8, length + 1] each."""
    total, count = 0.0, 0
    for tokens in batches:
        logits = model.logits(model(tokens[:, :-1])).float().flatten(0, 1)
        total += F.cross_entropy(logits, tokens[:, 1:].flatten(), reduction="sum").item()
        count += tokens[:, 1:].numel()
    return {"loss": round(total / count, 4), "perplexity": round(math.exp(total / count), 2)}


def windows(work: Path, recipe: Recipe) -> corpus.Windows:
    """Return the training batches of ``recipe``."""
    return corpus.Windows(work / "train.pt", recipe.seed, recipe.batch_size, recipe.length)


@torch.no_grad()
def held_out_figures(loss_fn: LossFn, batches: Sequence[torch.Tensor]) -> dict[str, float]:
    """Return the mean loss of held-out batches, and how often each draft is the target's token."""
    loss, *agreements = torch.tensor([loss_fn(tokens)[1] for tokens in batches]).mean(0).tolist()
    named = {f"agreement_{step}": value for step, value in enumerate(agreements, 1)}
    return {name: round(value, 4) for name, value in {"loss": loss, **named}.items()}
