"""One optimisation loop for every model of the zoo."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

LossFn = Callable[[torch.Tensor], tuple[torch.Tensor, list[float]]]
EvalFn = Callable[[], dict[str, float]]

LOG_EVERY = 50


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of one run; ``seed`` orders the batches.

    ``autocast`` is for long runs, whose matrix products are compiled; uncompiled ones of this size
    are faster in float32.
    """

    steps: int
    batch_size: int
    length: int
    learning_rate: float
    seed: int
    warmup: int = 100
    weight_decay: float = 0.1
    final_fraction: float = 0.03
    autocast: bool = True
    muon_learning_rate: float = 0.0

    def scaled(self, share: float) -> Recipe:
        """Return the same with another number of steps, and other text."""
        return replace(self, steps=round(self.steps * share), seed=self.seed + 1)


def schedule(recipe: Recipe, step: int) -> float:
    """Return the share of the learning rate: linear warm-up, then a cosine down."""
    warm = min(1.0, (step + 1) / recipe.warmup)
    cosine = 0.5 * (1 + math.cos(math.pi * step / recipe.steps))
    floor = recipe.final_fraction
    return warm * (floor + (1 - floor) * cosine)


def optimizers(
    parameters: list[torch.nn.Parameter], muon: list[torch.nn.Parameter], recipe: Recipe
) -> list[torch.optim.Optimizer]:
    """Return AdamW for ``parameters``, and Muon (Jordan 2024) for ``muon`` where there are some."""
    matrices = [p for p in parameters if p.ndim > 1]
    vectors = [p for p in parameters if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": recipe.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    made: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(0.9, 0.95), fused=True)
    ]
    if muon:
        made.append(
            torch.optim.Muon(
                muon,
                lr=recipe.muon_learning_rate,
                weight_decay=recipe.weight_decay,
                adjust_lr_fn="match_rms_adamw",
                ns_steps=3,  # of five; the rest costs as much as a step of a small head
            )
        )
    return made


def fit(
    name: str,
    parameters: list[torch.nn.Parameter],
    loss_fn: LossFn,
    next_batch: Callable[[], torch.Tensor],
    recipe: Recipe,
    muon: Sequence[torch.nn.Parameter] = (),
) -> dict[str, Any]:
    """Minimise ``loss_fn``; return the record with its curve.

    Args:
        name: for what is printed.
        parameters: of AdamW.
        loss_fn: returns the loss of a batch, and figures for the curve.
        next_batch: returns the next one.
        recipe: everything else.
        muon: matrices that Muon trains.
    """
    used = optimizers(parameters, list(muon), recipe)
    groups = [(group, group["lr"]) for optimizer in used for group in optimizer.param_groups]
    started, window, points = time.time(), [], []
    for step in range(recipe.steps):
        for group, peak in groups:
            group["lr"] = peak * schedule(recipe, step)
        with torch.autocast("cpu", torch.bfloat16, enabled=recipe.autocast):
            loss, figures = loss_fn(next_batch())
        loss.backward()
        torch.nn.utils.clip_grad_norm_([*parameters, *muon], 1.0)
        for optimizer in used:
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
    record_curve(name, {**record, "held_out": evaluate()}, out)


def record_curve(name: str, record: dict[str, Any], out: Path) -> None:
    """Write the record of a run, with its loss curve and its figures on held-out text."""
    print(name, "held out", record["held_out"], flush=True)
    path = out / "curves" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record) + "\n")
