"""P-EAGLE: the EAGLE-3 head, drafting in one pass from masks with a state of their own."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from .. import corpus, export
from ..eagle3_fit import matrices_and_others, new_head, settings, vocabulary_maps
from ..llama import rotary_table
from ..loop import Recipe, finish, fit
from ..masked import LATER_WEIGHT, MASK_ID, MaskedRows
from ..measure import held_out_figures, windows
from ..shapes import AUX_LAYERS, EAGLE3

RECIPE = Recipe(
    steps=1000,
    batch_size=4,
    length=192,
    learning_rate=1e-3,
    seed=19,
    warmup=40,
    muon_learning_rate=3e-3,
)
# Behind this many tokens of a window there is a run of this many masks.
RUNS, MASKS = 48, 3


def train(work: Path, out: Path, recipe: Recipe) -> None:
    """Train the head that stage ``eagle3_aligned`` wrote further, at each token ahead."""
    target = export.load_target(out / "target")
    head = new_head(target, work)
    head.load_checkpoint(load_file(out / "eagle3" / "model.safetensors"))
    # Stands for the states of the layers where there are none yet; vLLM runs it through ``fc``.
    mask_hidden = torch.nn.Parameter(torch.zeros(1, head.fc.in_features))
    held_out = corpus.held_out_batches(work / "held.pt", recipe.length, 48)
    generator = torch.Generator().manual_seed(recipe.seed)
    count = RUNS * MASKS

    @torch.compile
    def distillation(
        tokens: torch.Tensor, anchors: torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        length = tokens.shape[1] - 2
        rows = MaskedRows(length, anchors, MASKS)
        masks = tokens.new_full((len(tokens), count), MASK_ID)
        with torch.no_grad():
            hidden, states = target.with_states(tokens[:, :-1], AUX_LAYERS)
            goal = target.logits(hidden[:, 1:]).float()[:, rows.positions]
            embeddings = target.embed_tokens(torch.cat([tokens[:, 1:-1], masks], 1))
        known = torch.cat(states, -1)[:, :-1]
        features = head.fc(torch.cat([known, mask_hidden.expand(len(tokens), count, -1)], 1))
        table = rotary_table(length, EAGLE3.head_dim)
        output = head.rows(
            embeddings,
            features,
            (table[0][rows.positions], table[1][rows.positions]),
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=rows.visible),
        )
        logits = head.logits(output).float()
        # What the draft cannot say is missing from its goal.
        probabilities = goal.softmax(-1)[..., head.tokens]
        losses = -(probabilities * logits.log_softmax(-1)).sum(-1)
        agree = (head.tokens[logits.argmax(-1)] == goal.argmax(-1)).float()
        total, agreements = losses[:, :length].mean(), [agree[:, :length].mean()]
        for ahead in range(MASKS):
            place = slice(length + ahead, None, MASKS)
            total = total + LATER_WEIGHT ** (ahead + 1) * losses[:, place].mean()
            agreements.append(agree[:, place].mean())
        return total, agreements

    def loss_fn(tokens: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
        # The target tells nothing beyond the window.
        order = torch.randperm(tokens.shape[1] - 2 - MASKS, generator=generator)
        loss, agreements = distillation(tokens, order[:RUNS])
        return loss, [loss.item(), *(share.item() for share in agreements)]

    batches = windows(work, recipe)
    inner, outer = matrices_and_others(head)
    record = fit("peagle", [*outer, mask_hidden], loss_fn, batches.next, recipe, muon=inner)
    state = head.checkpoint() | vocabulary_maps(head.tokens) | {"mask_hidden": mask_hidden}
    export.save(
        out / "peagle", work / "tokenizer", EAGLE3, state, **settings(), ptd_token_id=MASK_ID
    )
    finish("peagle", record, lambda: held_out_figures(loss_fn, held_out), out)
