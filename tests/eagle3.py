"""Other forms of the zoo's EAGLE-3 head: derived from it, not trained."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from tests.config.checkpoints import WEIGHTS, edit_config, to_speculators
from tests.zoo import ZOO, ZOO_TARGET

HEAD = ZOO / "eagle3"
State = dict[str, torch.Tensor]
Change = Callable[[Path], None]


def state_of(folder: Path) -> State:
    """Return the weights of a checkpoint."""
    return load_file(folder / WEIGHTS)


def edit_state(folder: Path, change: Callable[[State], object]) -> None:
    """Change the weights of a checkpoint."""
    state = state_of(folder)
    change(state)
    save_file({n: t.contiguous() for n, t in state.items()}, folder / WEIGHTS, {"format": "pt"})


def speculators(folder: Path) -> None:
    """Write the same head as the speculators library does."""
    edit_state(
        folder,
        lambda state: [
            state.update({name.replace("midlayer.", "layers.0."): state.pop(name)})
            for name in list(state)
        ],
    )
    to_speculators(folder, ZOO_TARGET)


def whole_vocabulary(folder: Path) -> None:
    """Let it draft every token of the target's; what it did not know, by the target's rows."""

    def change(state: State) -> None:
        own, offsets = state["lm_head.weight"], state.pop("d2t")
        rows = embeddings().clone()
        rows[offsets + torch.arange(len(offsets))] = own
        state["lm_head.weight"] = rows
        del state["t2d"]

    edit_state(folder, change)
    edit_config(folder, draft_vocab_size=None)


def target_head(folder: Path) -> None:
    """Let it use the target's output layer, whole; its last norm stays its own."""
    whole_vocabulary(folder)
    edit_state(folder, lambda state: state.pop("lm_head.weight"))


def own_embedding(folder: Path) -> None:
    """Give it embeddings twice as long as the target's, which its norm takes back."""
    edit_state(folder, lambda state: state.update({"embed_tokens.weight": 2 * embeddings()}))


def version_3_1(folder: Path) -> None:
    """Norm each of the target's states, and feed back what is behind the last norm.

    It was not trained so and drafts worse.
    """
    config = json.loads((folder / "config.json").read_text())
    count = len(config["eagle_config"]["eagle_aux_hidden_state_layer_ids"])
    width = config["hidden_size"]
    # About as large as the states that the head was trained on.
    norms = {f"fc_norm.{n}.weight": torch.full((width,), 2.0 + 2 * n) for n in range(count)}
    edit_state(folder, lambda state: state.update({n: t.bfloat16() for n, t in norms.items()}))
    edit_config(folder, fc_norm=True, norm_output=True)


def normed_residual(folder: Path) -> None:
    """Carry the states on behind their norm; it was not trained so either."""
    edit_config(folder, norm_before_residual=True)


def embeddings() -> torch.Tensor:
    """Return the target's embeddings, which are its output layer, too."""
    return state_of(Path(ZOO_TARGET))["model.embed_tokens.weight"]


VARIANTS: dict[str, Change] = {
    "speculators": speculators,
    "whole vocabulary": whole_vocabulary,
    "the target's output layer": target_head,
    "own embedding": own_embedding,
    "EAGLE-3.1": version_3_1,
    "normed residual": normed_residual,
}


def write_variant(name: str, folder: Path) -> Path:
    """Write a form of the head to a folder."""
    shutil.copytree(HEAD, folder, copy_function=shutil.copyfile)
    VARIANTS[name](folder)
    return folder
