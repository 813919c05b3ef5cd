"""A Qwen2.5-VL that reads small pictures, and an EAGLE-3 head with M-RoPE for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .. import export
from ..eagle3_fit import (
    DRAFT_VOCAB_SIZE,
    frequent_tokens,
    matrices_and_others,
    unroll_head,
    vocabulary_maps,
)
from ..eagle3_head import Eagle3Head
from ..loop import Recipe, fit, record_curve
from ..measure import held_out_figures
from ..mtp_fit import fit_target, round_as_saved
from ..own_loop import Unrolled, loss_of
from ..picture_rows import PictureRows
from ..qwen25_vl import (
    IMAGE_PAD,
    VISION_END,
    VISION_START,
    Qwen25VL,
    config,
    copy_processor,
    rope_parameters,
    rotation_of,
)
from ..shapes import EAGLE3, QWEN25_VL

# Of the target's text; the pictures and the head have shares of the steps.
RECIPE = Recipe(
    steps=500,
    batch_size=6,
    length=256,
    learning_rate=2e-3,
    seed=51,
    warmup=30,
    muon_learning_rate=4e-3,
)
PICTURES_SHARE, HEAD_SHARE = 0.8, 0.9
AUX_LAYERS = tuple(range(1, QWEN25_VL.layers + 1))
# Lines that draw are 38 of a row's 256 tokens.
LINE_TOKENS, LINE_WEIGHT = 19, 4.0
NUM_HELD_OUT = 8


def train(work: Path, out: Path, recipe: Recipe) -> None:
    """Train the target on text, then on pictures, then the head; write both."""
    target = Qwen25VL(seed=50)
    # The zoo's target has learnt these on the same text.
    known = export.load_target(out / "target").embed_tokens.state_dict()
    target.embed_tokens.load_state_dict(known)
    text_record = fit_target("target_qwen25_vl", target, target.text.layers, work, recipe)
    record = fit_pictures(target, work, recipe.scaled(PICTURES_SHARE))
    round_as_saved(target)
    folder = out / "target-qwen25-vl"
    export.save_weights(folder, config(), target.checkpoint())
    copy_processor(work / "tokenizer", folder)
    record_curve("target_qwen25_vl", text_record, out)
    record_curve("pictures_qwen25_vl", record, out)
    chosen = frequent_tokens(work / "train.pt", DRAFT_VOCAB_SIZE)
    head = Eagle3Head(EAGLE3, target, chosen, len(AUX_LAYERS), seed=52)
    record = fit_head(head, target, work, recipe.scaled(HEAD_SHARE))
    write_head(out / "eagle3-qwen25-vl", head)
    record_curve("eagle3_qwen25_vl", record, out)


def fit_pictures(target: Qwen25VL, work: Path, recipe: Recipe) -> dict[str, Any]:
    """Train the target by next-token prediction on rows with pictures; return the record.

    Its figures are the share of right words about pictures that it has not seen, and the loss.
    """
    batches = PictureRows(work, recipe)

    def loss_fn(batch: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
        rows = batches.unpack(batch)
        read, labels = rows.tokens[:, :-1], rows.tokens[:, 1:]
        positions = target.positions(read, rows.grids)
        hidden, _ = target.with_states(target.embed(read, rows.patches, rows.grids), positions)
        logits = target.logits(hidden).float()
        losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        weights = weights_of(labels).flatten()
        loss = (losses * weights).sum() / weights.sum()
        of_lines = is_line(labels)
        right = (logits.argmax(-1) == labels)[of_lines].float().mean()
        return loss, [loss.item(), right.item()]

    # The tower's matrices are small, and new: AdamW takes them at once.
    matrices = [p for p in target.text.layers.parameters() if p.ndim == 2]
    others = [p for p in target.parameters() if all(p is not matrix for matrix in matrices)]
    record = fit("pictures_qwen25_vl", others, loss_fn, batches.next, recipe, matrices)
    unseen = PictureRows(work, recipe, held_out=True)
    with torch.no_grad():
        figures = torch.tensor([loss_fn(unseen.next())[1] for _ in range(NUM_HELD_OUT)]).mean(0)
    loss, right = figures.tolist()
    return {**record, "held_out": {"loss": round(loss, 4), "right_tokens": round(right, 4)}}


def is_line(
    tokens: torch.Tensor,  # [batch, length]
) -> torch.Tensor:
    """Return which tokens are of the lines behind pictures, bool [batch, length]."""
    ends = (tokens == VISION_END).float()
    before = F.pad(ends, (LINE_TOKENS, 0)).unfold(1, LINE_TOKENS + 1, 1)[..., :-1]
    return before.sum(-1) > 0


def weights_of(
    labels: torch.Tensor,  # [batch, length]
) -> torch.Tensor:
    """Return how much each label counts, float32 [batch, length]; pictures are not predicted."""
    seen = (labels == IMAGE_PAD) | (labels == VISION_START) | (labels == VISION_END)
    return (~seen).float() * (1 + (LINE_WEIGHT - 1) * is_line(labels).float())


def fit_head(head: Eagle3Head, target: Qwen25VL, work: Path, recipe: Recipe) -> dict[str, Any]:
    """Train the head on rows with pictures; return the record."""
    batches = PictureRows(work, recipe)

    @torch.compile
    def unrolled_on(tokens: torch.Tensor, seen: torch.Tensor, positions: torch.Tensor) -> Unrolled:
        with torch.no_grad():
            hidden, states = target.with_states(seen, positions)
            goal = target.logits(hidden[:, 1:]).float()
            embeddings = target.embed_tokens(tokens[:, 1:-1])
        rotation = rotation_of(positions[..., :-1])
        return unroll_head(head, hidden, states, goal, embeddings, rotation)

    def unrolled(batch: torch.Tensor) -> Unrolled:
        rows = batches.unpack(batch)
        read = rows.tokens[:, :-1]
        with torch.no_grad():
            seen = target.embed(read, rows.patches, rows.grids)
        return unrolled_on(rows.tokens, seen, target.positions(read, rows.grids))

    loss_fn = loss_of(unrolled)
    inner, outer = matrices_and_others(head)
    record = fit("eagle3_qwen25_vl", outer, loss_fn, batches.next, recipe, muon=inner)
    unseen = PictureRows(work, recipe, held_out=True)
    held_out = [unseen.next() for _ in range(NUM_HELD_OUT)]
    return {**record, "held_out": held_out_figures(loss_fn, held_out)}


def write_head(folder: Path, head: nn.Module) -> None:
    """Write the head's checkpoint; its words are the target's."""
    layers = {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": list(AUX_LAYERS)}
    settings = {
        "rope_parameters": rope_parameters(),
        "draft_vocab_size": DRAFT_VOCAB_SIZE,
        "tie_word_embeddings": False,
        "eagle_config": layers,
    }
    state = head.checkpoint() | vocabulary_maps(head.tokens)
    export.save_weights(folder, export.hf_config(EAGLE3) | settings, state)
