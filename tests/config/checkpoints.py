"""Tiny checkpoints on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

HIDDEN, VOCAB = 4, 16


def write_checkpoint(
    folder: Path, shapes: dict[str, list[int]] | None = None, **config: Any
) -> Path:
    """Write a checkpoint with tensors of ``shapes`` and the entries of ``config``."""
    folder.mkdir(parents=True)
    entries = {"model_type": "llama", "hidden_size": HIDDEN, "vocab_size": VOCAB, **config}
    present = {key: value for key, value in entries.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(present))
    if shapes is None:
        shapes = {"model.embed_tokens.weight": [VOCAB, HIDDEN]}
    if shapes:
        tensors = {name: torch.zeros(shape) for name, shape in shapes.items()}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_eagle(folder: Path, hidden: int = HIDDEN, **config: Any) -> Path:
    """Write an EAGLE head."""
    return write_checkpoint(
        folder, {"fc.weight": [hidden, 2 * hidden]}, **{"hidden_size": hidden, **config}
    )
