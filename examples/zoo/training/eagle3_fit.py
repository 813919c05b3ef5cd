"""What the stages of the EAGLE-3 head share: its vocabulary, its loss, its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from . import corpus, export
from .eagle3_head import Eagle3Head
from .eagle3_pool import Pool, Seen
from .llama import Llama, rotary_table
from .loop import Recipe, finish, fit
from .measure import windows
from .shapes import EAGLE3, VOCAB_SIZE

UNROLL = 3
LATER_STEP_WEIGHT = 0.8
REGRESSION_WEIGHT = 0.5
# Of the target's layers, as vLLM counts them: 0 is the embedding, 12 the last layer's output.
LAYERS = (3, 7, 12)
DRAFT_VOCAB_SIZE = 2048


def frequent_tokens(path: Path, count: int) -> torch.Tensor:
    """Return the ``count`` most frequent tokens of a stream, ascending, int64 [count]."""
    counts = torch.bincount(torch.load(path).long(), minlength=VOCAB_SIZE)
    return counts.argsort(descending=True, stable=True)[:count].sort().values


def vocabulary_maps(tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return ``d2t``, what to add to a draft's token, and ``t2d``, which of the target's it has."""
    known = torch.zeros(VOCAB_SIZE, dtype=torch.bool)
    known[tokens] = True
    return {"d2t": tokens - torch.arange(len(tokens)), "t2d": known}


def settings() -> dict[str, Any]:
    """Return what ``config.json`` has beside a Llama's entries."""
    layers = {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": list(LAYERS)}
    return {
        "draft_vocab_size": DRAFT_VOCAB_SIZE,
        "tie_word_embeddings": False,
        "eagle_config": layers,
    }


def new_head(target: Llama, work: Path, seed: int) -> Eagle3Head:
    """Return a head that knows the most frequent tokens and nothing more."""
    chosen = frequent_tokens(work / "train.pt", DRAFT_VOCAB_SIZE)
    return Eagle3Head(EAGLE3, target, chosen, len(LAYERS), seed)


def unrolled(head: Eagle3Head, seen: Seen, depth: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the loss of a head over ``depth`` steps of its own loop, and how often each agrees."""
    features, steps = head.fc(seen.states), []
    rotation = rotary_table(features.shape[1], EAGLE3.head_dim)
    total, agreements = torch.zeros(()), []
    for step in range(depth):
        output = head.step(seen.embeddings, features, rotation, steps)
        logits = head.logits(output)
        distil = -(seen.goal * logits.log_softmax(-1)).sum(-1)[:, step:].mean()
        regress = F.smooth_l1_loss(head.norm(output[:, step:]), seen.hidden[:, step:])
        loss = distil + REGRESSION_WEIGHT * regress
        total = total + LATER_STEP_WEIGHT**step * loss
        same = head.tokens[logits.argmax(-1)] == seen.choice
        agreements.append(same[:, step:].float().mean())
        features = torch.cat([features[:, :1], output[:, :-1]], 1)
    return total, agreements


@torch.no_grad()
def evaluate(head: Eagle3Head, target: Llama, work: Path, length: int) -> dict[str, float]:
    """Return loss and agreement with the target on held-out windows."""
    held_out = corpus.held_out_batches(work / "held.pt", length)
    pool = Pool(target, head.tokens, held_out, LAYERS, seed=0)
    found = [unrolled(head, pool.seen(number), UNROLL) for number in range(len(held_out))]
    means = torch.tensor([[loss, *agreements] for loss, agreements in found]).mean(0).tolist()
    names = ["loss", *(f"agreement_{step + 1}" for step in range(UNROLL))]
    return {name: round(value, 4) for name, value in zip(names, means, strict=True)}


def train_head(
    name: str,
    head: Eagle3Head,
    target: Llama,
    work: Path,
    out: Path,
    recipe: Recipe,
    *,
    pool_size: int,
    unroll_from: int = 0,
) -> None:
    """Train a head and write its checkpoint.

    Args:
        name: of the stage.
        head: as it is before.
        target: the target.
        work: folder of the token streams.
        out: folder of the checkpoints.
        recipe: the hyperparameters.
        pool_size: number of batches, which come again and again: to show one to the target costs
            more than a step of the head.
        unroll_from: first step that trains ``UNROLL`` drafts; those before train one, at a third of
            the cost.
    """
    drawn = windows(work, recipe)
    batches = [drawn.next() for _ in range(pool_size)]
    pool = Pool(target, head.tokens, batches, LAYERS, recipe.seed)
    done = 0

    def loss_fn(number: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
        nonlocal done
        depth = UNROLL if done >= unroll_from else 1
        done += 1
        loss, agreements = unrolled(head, pool.seen(int(number)), depth)
        return loss, [loss.item(), *(a.item() for a in agreements), *[0.0] * (UNROLL - depth)]

    inner = [p for n, p in head.named_parameters() if p.ndim > 1 and not n.startswith("lm_head")]
    outer = [p for p in head.parameters() if all(p is not other for other in inner)]
    record = fit(name, outer, loss_fn, pool.next, recipe, muon=inner)
    state = head.checkpoint() | vocabulary_maps(head.tokens)
    export.save(out / "eagle3", work / "tokenizer", EAGLE3, state, **settings())
    finish(name, record, lambda: evaluate(head, target, work, recipe.length), out)
