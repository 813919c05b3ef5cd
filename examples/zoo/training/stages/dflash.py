"""The DFlash head (Chen et al., 2602.06036): fills the masks of a block, all at once."""

from __future__ import annotations

from pathlib import Path

import torch

from .. import command, export
from ..loop import record_curve
from ..masked import MASK_ID
from ..shapes import AUX_LAYERS, DFLASH

RECIPE = command.Recipe(
    "dflash",
    steps=1500,
    library=("--num-layers", str(DFLASH.layers), "--mask-token-id", str(MASK_ID)),
)
CONFIG = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "dflash_config": {
        "mask_token_id": MASK_ID,
        # Counted from 0, and what comes out of each.
        "target_layer_ids": [layer - 1 for layer in AUX_LAYERS],
    },
}


def train(work: Path, out: Path, recipe: command.Recipe) -> None:
    """Let the command train it."""
    state, record = command.run(work, out, recipe)
    save(out / "dflash", state)
    record_curve("dflash", record, out)


def save(folder: Path, state: dict[str, torch.Tensor]) -> None:
    """Write a head of the command as published ones are.

    The target's embeddings and output layer are used.
    """
    export.save_weights(folder, export.hf_config(DFLASH) | CONFIG, state)
