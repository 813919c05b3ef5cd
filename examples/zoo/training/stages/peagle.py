"""P-EAGLE: a head of EAGLE-3's kind, drafting in one pass from masks with a state of their own."""

from __future__ import annotations

from pathlib import Path

import torch

from .. import command, export
from ..eagle3_fit import DRAFT_VOCAB_SIZE, settings
from ..loop import record_curve
from ..masked import MASK_ID
from ..shapes import PEAGLE

RECIPE = command.Recipe(
    "peagle",
    steps=3000,
    options=("--draft-vocab-size", str(DRAFT_VOCAB_SIZE)),
    # vLLM 0.23 has no head of this kind with Qwen3's layers, which are the library's default.
    library=("--draft-arch", "llama", "--mask-token-id", str(MASK_ID)),
)


def train(work: Path, out: Path, recipe: command.Recipe) -> None:
    """Let the command train it."""
    state, record = command.run(work, out, recipe)
    save(out / "peagle", work / "tokenizer", state)
    record_curve("peagle", record, out)


def save(folder: Path, tokenizer: Path, state: dict[str, torch.Tensor]) -> None:
    """Write a head of the command as published EAGLE-3 heads are."""
    named = {name.replace("layers.0.", "midlayer."): value for name, value in state.items()}
    named["mask_hidden"] = state["mask_hidden"][0]
    # The library's default.
    further = {**settings(), "norm_before_residual": True, "ptd_token_id": MASK_ID}
    export.save(folder, tokenizer, PEAGLE, named, **further)
