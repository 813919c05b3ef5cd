"""One optimisation loop for every model of the zoo."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

LossFn = Callable[[torch.Tensor], tuple[torch.Tensor, list[float]]]
EvalFn = Callable[[], dict[str, float]]

LOG_EVERY = 50


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of one run; ``seed`` orders the batches."""

    steps: int
    batch_size: int
    length: int
    learning_rate: float
    seed: int
    warmup: int = 100
    weight_decay: float = 0.1
    final_fraction: float = 0.03


def learning_rate(recipe: Recipe, step: int) -> float:
    """Linear warm-up, then a cosine down to ``final_fraction`` of the peak."""
    warm = min(1.0, (step + 1) / recipe.warmup)
    cosine = 0.5 * (1 + math.cos(math.pi * step / recipe.steps))
    floor = recipe.final_fraction
    return recipe.learning_rate * warm * (floor + (1 - floor) * cosine)


def fit(
    name: str,
    parameters: list[torch.nn.Parameter],
    loss_fn: LossFn,
    next_batch: Callable[[], torch.Tensor],
    recipe: Recipe,
) -> dict[str, Any]:
    """Minimise ``loss_fn`` with AdamW in bfloat16 autocast; return the record with its curve."""
    matrices = [p for p in parameters if p.ndim > 1]
    vectors = [p for p in parameters if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": recipe.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(0.9, 0.95), fused=True)
    started, window, points = time.time(), [], []
    for step in range(recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(recipe, step)
        with torch.autocast("cpu", torch.bfloat16):
            loss, figures = loss_fn(next_batch())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        window.append(figures)
        if (step + 1) % LOG_EVERY == 0 or step + 1 == recipe.steps:
            means = [round(v, 4) for v in torch.tensor(window).mean(0).tolist()]
            window = []
            points.append([step + 1, *means])
            seconds = time.time() - started
            print(f"{name} {step + 1}/{recipe.steps} {seconds:.0f}s {means}", flush=True)
    return {
        "recipe": vars(recipe),
        "seconds": round(time.time() - started),
        "torch": torch.__version__,
        "curve": points,
    }


def finish(name: str, record: dict[str, Any], evaluate: EvalFn, out: Path) -> None:
    """Evaluate, once the weights are safe on disk, and write the record with the loss curve."""
    held_out = evaluate()
    print(name, "held out", held_out, flush=True)
    path = out / "curves" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**record, "held_out": held_out}) + "\n")
