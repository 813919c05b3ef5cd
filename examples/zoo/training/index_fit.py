"""Train indexers to score highest what their attention looks at (2512.02556, section 2.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from . import corpus
from .llama import Rotation
from .loop import Recipe, fit
from .measure import windows
from .mla_sparse import SparseAttention

# Of how many tokens the share of the attention is recorded.
BEST = 16


def loss_of_indexer(
    attention: SparseAttention, rotation: Rotation
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compare an indexer with its attention, for what that has read last.

    Args:
        attention: of a layer.
        rotation: rotary table of as many positions as were read.

    Returns:
        The KL divergence from the attention's distribution to the indexer's, and the share of the
        attention that goes to the ``BEST`` tokens that the indexer scores highest, both scalars.
    """
    looked_at, scores = attention.looked_at(rotation), attention.index_scores()
    later = scores == float("-inf")
    log_share = scores.log_softmax(-1).masked_fill(later, 0.0)
    entropy = torch.special.entr(looked_at).sum(-1)
    divergence = (-(looked_at * log_share).sum(-1) - entropy).mean()
    best = scores.topk(BEST, -1).indices
    # Tokens that have no more than BEST before them would always reach 1.
    covered = looked_at.gather(-1, best).sum(-1)[:, BEST:].mean()
    return divergence, covered


def fit_indexers(
    name: str,
    attentions: Sequence[SparseAttention],
    run: Callable[[torch.Tensor], None],
    rotation: Rotation,
    work: Path,
    recipe: Recipe,
) -> dict[str, Any]:
    """Train the indexers of layers that are otherwise frozen; return the record.

    Args:
        name: of the stage.
        attentions: of the layers.
        run: runs the layers on tokens [batch, length + 1].
        rotation: rotary table of ``recipe.length - 1`` positions or more.
        work: folder of the token streams.
        recipe: everything else.
    """

    def loss_fn(tokens: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
        with torch.no_grad():
            run(tokens)
        losses, shares = zip(
            *(loss_of_indexer(each, cut(rotation, each)) for each in attentions), strict=True
        )
        loss = torch.stack(losses).mean()
        return loss, [loss.item(), torch.stack(shares).mean().item()]

    for attention in attentions:
        attention.remembers = True
        attention.indexer.requires_grad_(True)
    parameters = [p for attention in attentions for p in attention.indexer.parameters()]
    batches = windows(work, recipe)
    record = fit(name, parameters, loss_fn, batches.next, recipe)
    held_out = corpus.held_out_batches(work / "held.pt", recipe.length, 48)
    with torch.no_grad():
        loss, share = torch.tensor([loss_fn(tokens)[1] for tokens in held_out]).mean(0).tolist()
    for attention in attentions:
        attention.remembers, attention.seen = False, None
        attention.indexer.requires_grad_(False)
    figures = {"loss": round(loss, 4), f"attention_to_best_{BEST}": round(share, 4)}
    return {**record, "held_out": figures}


def cut(rotation: Rotation, attention: SparseAttention) -> Rotation:
    """Return the part of a rotary table for what an attention has read last."""
    assert attention.seen is not None
    length = attention.seen.shape[1]
    return rotation[0][:length], rotation[1][:length]
