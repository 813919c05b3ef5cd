"""The DSpark head, on blocks of one to seven rows: a token, and the masks behind it."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

from .. import corpus, export
from ..dflash_head import visible_to
from ..dspark_head import DSparkHead
from ..llama import rotary_table
from ..loop import Recipe, finish, fit
from ..masked import LATER_WEIGHT, MASK_ID
from ..measure import held_out_figures, windows
from ..shapes import AUX_LAYERS, DFLASH, DSPARK_RANK

RECIPE = Recipe(
    steps=1200,
    batch_size=4,
    length=192,
    learning_rate=2e-3,
    seed=51,
    warmup=40,
    muon_learning_rate=4e-3,
)
BLOCKS, ROWS = 40, 7
CONFIDENCE_WEIGHT = 0.1
CONFIG = {
    "architectures": ["Qwen3DSparkModel"],
    "model_type": "qwen3",
    "mask_token_id": MASK_ID,
    # Counted from 0, and what comes out of each.
    "target_layer_ids": [layer - 1 for layer in AUX_LAYERS],
    "block_size": ROWS,
    # The token at the head of a block yields the first draft.
    "sample_from_anchor": True,
    "markov_rank": DSPARK_RANK,
    "markov_head_type": "vanilla",
    "enable_confidence_head": True,
    "confidence_head_with_markov": True,
}


def train(work: Path, out: Path, recipe: Recipe) -> None:
    """Train it to imitate the target's distribution after each row."""
    target = export.load_target(out / "target")
    head = DSparkHead(DFLASH, target, len(AUX_LAYERS), seed=50)
    held_out = corpus.held_out_batches(work / "held.pt", recipe.length, 48)
    generator = torch.Generator().manual_seed(recipe.seed)
    table = rotary_table(recipe.length, DFLASH.head_dim)

    @torch.compile
    def distillation(
        tokens: torch.Tensor, anchors: torch.Tensor, counts: torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        tokens = tokens[:, :-1]
        positions = (anchors[:, None] + torch.arange(ROWS)).flatten()
        before = tokens[:, positions]
        with torch.no_grad():
            hidden, states = target.with_states(tokens, AUX_LAYERS)
            goal = target.logits(hidden[:, positions]).float()
            is_mask = torch.arange(len(positions)) % ROWS > 0
            blocks = target.embed_tokens(torch.where(is_mask, MASK_ID, before))
        output = head(
            torch.cat(states, -1),
            blocks,
            (table, (table[0][positions], table[1][positions])),
            visible_to(tokens.shape[1], anchors, counts, ROWS),
        )
        added, confidence = head.after(output, before)
        logits = (target.logits(output) + added).float()
        wanted, drafted = goal.softmax(-1), logits.log_softmax(-1)
        losses = -(wanted * drafted).sum(-1)
        # How often rejection sampling accepts a sampled draft.
        accepted = torch.minimum(wanted, drafted.detach().exp()).sum(-1)
        misjudged = F.binary_cross_entropy_with_logits(
            confidence.float(), accepted, reduction="none"
        )
        losses = losses + CONFIDENCE_WEIGHT * misjudged
        shape = (len(tokens), BLOCKS, ROWS)
        losses = losses.view(shape)
        agree = (logits.argmax(-1) == goal.argmax(-1)).float().view(shape)
        total, agreements = torch.zeros(()), []
        for place in range(ROWS):
            there = (counts > place).float() / (counts > place).sum().clamp(min=1)
            total = total + LATER_WEIGHT**place * (losses[:, :, place] * there).sum(1).mean()
            agreements.append((agree[:, :, place] * there).sum(1).mean())
        return total, agreements

    def loss_fn(tokens: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
        order = torch.randperm(tokens.shape[1] - 1 - ROWS, generator=generator)
        counts = torch.randint(1, ROWS + 1, (BLOCKS,), generator=generator)
        loss, agreements = distillation(tokens, 1 + order[:BLOCKS], counts)
        return loss, [loss.item(), *(share.item() for share in agreements)]

    matrices = [p for p in head.layers.parameters() if p.ndim > 1]
    others = [p for p in head.parameters() if all(p is not other for other in matrices)]
    batches = windows(work, recipe)
    record = fit("dspark", others, loss_fn, batches.next, recipe, muon=matrices)
    # The target's embeddings and output layer are used.
    config = export.hf_config(DFLASH) | CONFIG
    export.save_weights(out / "dspark", config, head.state_dict())
    finish("dspark", record, lambda: held_out_figures(loss_fn, held_out), out)
