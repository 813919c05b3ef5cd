"""The trained head in the library's form, as vLLM reads it, from a checkpoint."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.training.atomic import TEMPORARY, sync_folder, write_whole

if TYPE_CHECKING:
    import torch

    State = dict[str, torch.Tensor]

CONFIG, WEIGHTS = "config.json", "model.safetensors"


def write_head(
    checkpoint: Path,
    head: Path,
    dtype: torch.dtype,
    added: Callable[[State], State] = lambda state: {},
    **changed: Any,
) -> None:
    """Copy config and weights of a checkpoint; the folder is there when it is whole.

    Args:
        checkpoint: folder of the checkpoint, in the library's form.
        head: the folder to write.
        dtype: of the weights.
        added: returns tensors to add to those that it gets.
        changed: entries of the config to set.
    """
    from safetensors.torch import load_file, save_file

    temporary = head.with_name(head.name + TEMPORARY)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    found: State = load_file(checkpoint / WEIGHTS)
    state = {
        name: tensor.to(dtype) if tensor.is_floating_point() else tensor
        for name, tensor in {**found, **added(found)}.items()
    }
    write_whole(temporary / WEIGHTS, lambda path: save_file(state, path, {"format": "pt"}))
    config = json.loads((checkpoint / CONFIG).read_text()) | changed
    config |= {"dtype": str(dtype).removeprefix("torch."), **_without_windows(config)}
    text = json.dumps(config, indent=2) + "\n"
    write_whole(temporary / CONFIG, lambda path: path.write_text(text))
    temporary.replace(head)
    sync_folder(head.parent)


WINDOWS_SEE_BLOCKS = "sliding_window_non_causal"


def _without_windows(config: dict[str, Any]) -> dict[str, bool]:
    """Return what tells vLLM that layers without a window see the whole block of a DFlash head.

    For the library the entry is about layers with a window alone. vLLM (``update_dflash``) applies
    it to all, so the library's default makes it mask what the head has learned to look at.
    """
    layers = config.get("transformer_layer_config", {}).get("layer_types") or []
    said = WINDOWS_SEE_BLOCKS in config and "sliding_attention" not in layers
    return {WINDOWS_SEE_BLOCKS: True} if said else {}
