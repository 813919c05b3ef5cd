"""The DFlash head, on blocks of one to five masks."""

from __future__ import annotations

from pathlib import Path

import torch

from .. import corpus, export
from ..dflash_head import DFlashHead, visible_to
from ..llama import rotary_table
from ..loop import Recipe, finish, fit
from ..masked import LATER_WEIGHT, MASK_ID
from ..measure import held_out_figures, windows
from ..shapes import AUX_LAYERS, DFLASH

RECIPE = Recipe(steps=700, batch_size=4, length=192, learning_rate=2e-3, seed=17, warmup=40)
BLOCKS, MASKS = 48, 5
ROWS = 1 + MASKS
CONFIG = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "dflash_config": {
        "mask_token_id": MASK_ID,
        # Counted from 0, and what comes out of each.
        "target_layer_ids": [layer - 1 for layer in AUX_LAYERS],
    },
}


def train(work: Path, out: Path, recipe: Recipe) -> None:
    """Train it to imitate the target's distribution at each mask."""
    target = export.load_target(out / "target")
    head = DFlashHead(DFLASH, target, len(AUX_LAYERS), seed=16)
    held_out = corpus.held_out_batches(work / "held.pt", recipe.length, 48)
    generator = torch.Generator().manual_seed(recipe.seed)
    table = rotary_table(recipe.length, DFLASH.head_dim)

    @torch.compile
    def distillation(
        tokens: torch.Tensor, anchors: torch.Tensor, counts: torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        tokens = tokens[:, :-1]
        positions = (anchors[:, None] + torch.arange(ROWS)).flatten()
        with torch.no_grad():
            hidden, states = target.with_states(tokens, AUX_LAYERS)
            # A mask stands where its token is, and the target tells that one row before.
            goal = target.logits(hidden[:, positions - 1]).float()
            is_mask = torch.arange(len(positions)) % ROWS > 0
            blocks = target.embed_tokens(torch.where(is_mask, MASK_ID, tokens[:, positions]))
        output = head(
            torch.cat(states, -1),
            blocks,
            (table, (table[0][positions], table[1][positions])),
            visible_to(tokens.shape[1], anchors, 1 + counts, ROWS),
        )
        logits = target.logits(output).float()
        shape = (len(tokens), BLOCKS, ROWS)
        losses = -(goal.softmax(-1) * logits.log_softmax(-1)).sum(-1).view(shape)
        agree = (logits.argmax(-1) == goal.argmax(-1)).float().view(shape)
        total, agreements = torch.zeros(()), []
        for place in range(1, ROWS):
            there = (counts >= place).float() / (counts >= place).sum().clamp(min=1)
            weight = LATER_WEIGHT ** (place - 1)
            total = total + weight * (losses[:, :, place] * there).sum(1).mean()
            agreements.append((agree[:, :, place] * there).sum(1).mean())
        return total, agreements

    def loss_fn(tokens: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
        order = torch.randperm(tokens.shape[1] - 1 - ROWS, generator=generator)
        counts = torch.randint(1, ROWS, (BLOCKS,), generator=generator)
        loss, agreements = distillation(tokens, 1 + order[:BLOCKS], counts)
        return loss, [loss.item(), *(share.item() for share in agreements)]

    batches = windows(work, recipe)
    record = fit("dflash", list(head.parameters()), loss_fn, batches.next, recipe)
    # The target's embeddings and output layer are used.
    config = export.hf_config(DFLASH) | CONFIG
    export.save_weights(out / "dflash", config, head.state_dict())
    finish("dflash", record, lambda: held_out_figures(loss_fn, held_out), out)
