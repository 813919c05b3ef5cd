"""Whose outputs a trained head reads, from its config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vllm_ascend_spec.checkpoint.config_json import read_config
from vllm_ascend_spec.training.methods import default_layers

EAGLE3 = "eagle_aux_hidden_state_layer_ids"
# These number the layers one lower in their own config.
BLOCKS = "target_layer_ids"


def layers_of_head(method: str, head: Path, num_hidden_layers: int) -> tuple[int, ...]:
    """Return the layers; i is the output of the first i layers.

    Args:
        method: the head's.
        head: its folder, in the speculators library's form or its own.
        num_hidden_layers: of the target, whose usual layers they are if the head names none.

    Raises:
        InvalidCheckpointError: its config cannot be read.
    """
    config = read_config(head)
    for part in (config, config.get("eagle_config"), config.get("dflash_config")):
        if isinstance(part, Mapping) and (found := _named(part)):
            return found
    return default_layers(method, num_hidden_layers)


def _named(part: Mapping[str, Any]) -> tuple[int, ...]:
    if part.get(EAGLE3):
        return tuple(part[EAGLE3])
    return tuple(layer + 1 for layer in part.get(BLOCKS) or ())
