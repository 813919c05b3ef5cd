"""What the stages of targets with experts share: a target and its EAGLE-3 head, one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from . import corpus, export
from .eagle3_fit import Kind, new_head, train_head
from .loop import Recipe, record_curve
from .mixture import Mixture
from .mtp_fit import fit_target, round_as_saved

Weights = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Pair:
    """A target with experts and its head.

    Attributes:
        name: in the names of folders.
        config: ``config.json`` of the target.
        published: names the target's weights as published checkpoints do.
        layers: of the target, which the head reads.
        head_share: of the target's steps, how many the head has.
        seed: of the head's first weights.
    """

    name: str
    config: dict[str, Any]
    published: Callable[[Weights], Weights]
    layers: Sequence[int]
    head_share: float
    seed: int


def train_pair(pair: Pair, target: Mixture, work: Path, out: Path, recipe: Recipe) -> None:
    """Train a target, whose weights are random, then its head, and write both.

    Args:
        pair: what they are.
        target: to be trained; its embeddings are taken from the zoo's target.
        work: folder of the token streams.
        out: folder of the checkpoints.
        recipe: of the target.
    """
    # The zoo's target has learnt these on the same text.
    learnt = export.load_target(out / "target").embed_tokens.state_dict()
    target.embed_tokens.load_state_dict(learnt)
    name, layers = pair.name.replace("-", "_"), target.model.layers
    record = fit_target(f"target_{name}", target, layers, work, recipe, target.balanced)
    round_as_saved(target)
    held_out = corpus.held_out_batches(work / "held.pt", recipe.length, 48)
    shares = torch.stack([target.shares(tokens[:, :-1]) for tokens in held_out]).mean(0)
    for which, share in (("least", shares.min()), ("most", shares.max())):
        record["held_out"][f"{which}_used_expert"] = round(share.item(), 4)
    folder = out / f"target-{pair.name}"
    export.save_weights(folder, pair.config, pair.published(target.weights()))
    export.copy_tokenizer(work / "tokenizer", folder)
    record_curve(f"target_{name}", record, out)

    head = new_head(target, work, pair.layers, pair.seed)
    rest = recipe.scaled(pair.head_share)
    kind = Kind(f"eagle3-{pair.name}", pair.layers)
    train_head(f"eagle3_{name}", head, target, work, out, rest, kind=kind)
