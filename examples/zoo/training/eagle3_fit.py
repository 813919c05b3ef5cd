"""What the stages of the EAGLE-3 head share: its vocabulary, its loss, its checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from . import corpus, export
from .eagle3_head import Eagle3Head, Target
from .llama import Rotation, rotary_table
from .loop import Recipe, finish, fit
from .measure import held_out_figures, windows
from .own_loop import Unrolled, distillation, loss_of, unroll
from .shapes import AUX_LAYERS, EAGLE3, VOCAB_SIZE

UNROLL = 3
REGRESSION_WEIGHT = 0.5
# 97.6% of the text.
DRAFT_VOCAB_SIZE = 3072


@dataclass(frozen=True)
class Kind:
    """What a head is called and reads.

    Attributes:
        folder: of its checkpoint.
        layers: of the target, whose states it reads; the last is where it starts from.
    """

    folder: str = "eagle3"
    layers: Sequence[int] = AUX_LAYERS


def frequent_tokens(path: Path, count: int) -> torch.Tensor:
    """Return the ``count`` most frequent tokens of a stream, ascending, int64 [count]."""
    counts = torch.bincount(torch.load(path).long(), minlength=VOCAB_SIZE)
    return counts.argsort(descending=True, stable=True)[:count].sort().values


def vocabulary_maps(tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return ``d2t``, what to add to a draft's token, and ``t2d``, which of the target's it has."""
    known = torch.zeros(VOCAB_SIZE, dtype=torch.bool)
    known[tokens] = True
    return {"d2t": tokens - torch.arange(len(tokens)), "t2d": known}


def settings(layers: Sequence[int] = AUX_LAYERS) -> dict[str, Any]:
    """Return what ``config.json`` has beside a Llama's entries."""
    read = {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": list(layers)}
    return {
        "draft_vocab_size": DRAFT_VOCAB_SIZE,
        "tie_word_embeddings": False,
        "eagle_config": read,
    }


def new_head(
    target: Target, work: Path, layers: Sequence[int] = AUX_LAYERS, seed: int = 10
) -> Eagle3Head:
    """Return a head that knows the most frequent tokens and nothing more."""
    chosen = frequent_tokens(work / "train.pt", DRAFT_VOCAB_SIZE)
    return Eagle3Head(EAGLE3, target, chosen, len(layers), seed)


def matrices_and_others(
    head: Eagle3Head,
) -> tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]]:
    """Return what Muon trains, and what it does not: norms and the output layer."""
    inner = [p for n, p in head.named_parameters() if p.ndim > 1 and not n.startswith("lm_head")]
    return inner, [p for p in head.parameters() if all(p is not other for other in inner)]


def unroll_head(
    head: Eagle3Head,
    hidden: torch.Tensor,  # [batch, length + 1, hidden]
    states: list[torch.Tensor],  # [batch, length + 1, hidden] for each layer that it reads
    goal: torch.Tensor,  # [batch, length, vocab_size]
    embeddings: torch.Tensor,  # [batch, length, hidden]
    rotation: Rotation,
    alignment: float = 0.0,
) -> Unrolled:
    """Run a head over ``UNROLL`` steps of its own loop; return loss and agreements.

    Args:
        head: the head.
        hidden: the target's normed states.
        states: those that the head reads.
        goal: the target's logits for the token after the next, float32.
        embeddings: of the token after each position.
        rotation: rotary table of ``length`` positions.
        alignment: weight of the distance between what a draft step hands to the next one and what
            the target's states would be there.
    """
    chosen = head.tokens
    # What the draft cannot say is missing from its goal.
    probabilities, choice = goal.softmax(-1)[..., chosen], goal.argmax(-1)
    everywhere = head.fc(torch.cat(states, -1))
    features, goals = everywhere[:, :-1], everywhere[:, 1:].detach().float()

    def judge(step: int, output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = head.logits(output).float()
        normed = head.norm(output[:, step:]).float()
        regress = F.smooth_l1_loss(normed, hidden[:, 1 + step :].float())
        loss = distillation(logits, probabilities, step) + REGRESSION_WEIGHT * regress
        if alignment:
            apart = F.smooth_l1_loss(output[:, step:].float(), goals[:, step:])
            loss = loss + alignment * apart
        same = chosen[logits.argmax(-1)] == choice
        return loss, same[:, step:].float().mean()

    return unroll(head, UNROLL, embeddings, features, rotation, judge)


def train_head(
    name: str,
    head: Eagle3Head,
    target: Target,
    work: Path,
    out: Path,
    recipe: Recipe,
    *,
    kind: Kind = Kind(),
    alignment: float = 0.0,
) -> None:
    """Train a head over ``UNROLL`` steps of its own loop and write its checkpoint.

    Args:
        name: of the stage.
        head: as it is before.
        target: the target.
        work: folder of the token streams.
        out: folder of the checkpoints.
        recipe: the hyperparameters.
        kind: of the head.
        alignment: weight of the distance between what a draft step hands to the next one and what
            the target's states would be there.
    """
    held_out = corpus.held_out_batches(work / "held.pt", recipe.length)

    @torch.compile
    def unrolled(tokens: torch.Tensor) -> Unrolled:
        with torch.no_grad():
            hidden, states = target.with_states(tokens[:, :-1], kind.layers)
            goal = target.logits(hidden[:, 1:]).float()
            embeddings = target.embed_tokens(tokens[:, 1:-1])
        rotation = rotary_table(embeddings.shape[1], EAGLE3.head_dim)
        return unroll_head(head, hidden, states, goal, embeddings, rotation, alignment)

    loss_fn = loss_of(unrolled)
    inner, outer = matrices_and_others(head)
    batches = windows(work, recipe)
    record = fit(name, outer, loss_fn, batches.next, recipe, muon=inner)
    state = head.checkpoint() | vocabulary_maps(head.tokens)
    further = settings(kind.layers)
    export.save(out / kind.folder, work / "tokenizer", EAGLE3, state, **further)
    finish(name, record, lambda: held_out_figures(loss_fn, held_out), out)
