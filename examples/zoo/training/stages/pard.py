"""PARD (2504.18583): the draft model with a second layer, drafting from masks in one pass."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file

from .. import corpus, export
from ..llama import Llama
from ..loop import Recipe, finish, fit
from ..masked import LATER_WEIGHT, MASK_ID, MaskedRows, masked_hidden
from ..measure import held_out_figures, windows
from ..shapes import DRAFT, PARD

RECIPE = Recipe(steps=500, batch_size=4, length=192, learning_rate=2e-3, seed=15, warmup=40)
# Behind this many tokens of a window there is a run of this many masks.
RUNS, MASKS = 48, 4


def start(folder: Path) -> Llama:
    """Return the draft model with a second layer that changes nothing yet."""
    model = Llama(PARD, seed=14)
    state = {k.removeprefix("model."): v.float() for k, v in load_file(folder).items()}
    model.load_state_dict(state, strict=False)
    for layer in model.layers[DRAFT.layers :]:
        torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
        torch.nn.init.zeros_(layer.mlp.down_proj.weight)
    return model


def train(work: Path, out: Path, recipe: Recipe) -> None:
    """Train it to imitate the target's distribution at each token ahead."""
    target, model = export.load_target(out / "target"), start(out / "draft" / "model.safetensors")
    held_out = corpus.held_out_batches(work / "held.pt", recipe.length, 48)
    generator = torch.Generator().manual_seed(recipe.seed)

    @torch.compile
    def distillation(
        tokens: torch.Tensor, anchors: torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        tokens = tokens[:, :-1]
        length = tokens.shape[1]
        rows = MaskedRows(length, anchors, MASKS)
        with torch.no_grad():
            goal = target.logits(target(tokens)).float()[:, rows.positions]
        logits = model.logits(masked_hidden(model, tokens, rows)).float()
        losses = -(goal.softmax(-1) * logits.log_softmax(-1)).sum(-1)
        agree = (logits.argmax(-1) == goal.argmax(-1)).float()
        total, agreements = losses[:, :length].mean(), [agree[:, :length].mean()]
        for ahead in range(MASKS):
            place = slice(length + ahead, None, MASKS)
            total = total + LATER_WEIGHT ** (ahead + 1) * losses[:, place].mean()
            agreements.append(agree[:, place].mean())
        return total, agreements

    def loss_fn(tokens: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
        # The target tells nothing beyond the window.
        order = torch.randperm(tokens.shape[1] - 1 - MASKS, generator=generator)
        loss, agreements = distillation(tokens, order[:RUNS])
        return loss, [loss.item(), *(share.item() for share in agreements)]

    batches = windows(work, recipe)
    record = fit("pard", list(model.parameters()), loss_fn, batches.next, recipe)
    state = {f"model.{k}": v for k, v in model.state_dict().items()}
    export.save(out / "pard", work / "tokenizer", PARD, state, pard_token=MASK_ID)
    finish("pard", record, lambda: held_out_figures(loss_fn, held_out), out)
