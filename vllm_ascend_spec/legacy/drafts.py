"""The default number of drafts of a checkpoint, and whether a target has MTP layers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vllm_ascend_spec.checkpoint.config_json import NAME, parse_object
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError

# The usual number in guides, for checkpoints that do not say how many drafts they make.
DEFAULT_DRAFTS = 5
# Targets with draft layers of their own: the method, keys of their configs, names on the hub.
MTP = "mtp"
MTP_COUNTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers")
MTP_NAMES = ("deepseek-v3", "deepseek-r1")
COUNTS = ("num_heads", "medusa_num_heads", "n_predict")


def has_mtp_layers(model: str) -> bool:
    """Tell whether a target has MTP layers, by its local config or its name on the hub."""
    folder = Path(model).expanduser()
    if not (folder / NAME).is_file():
        return any(part in folder.name.lower() for part in MTP_NAMES)
    counts = map(_config_of(folder).get, MTP_COUNTS)
    return any(isinstance(count, int) and count > 0 for count in counts)


def drafts_of(model: str) -> int | None:
    """Return how many drafts a checkpoint makes in a step; None where it does not say."""
    config = _config_of(Path(model).expanduser())
    counts = (config.get(name) for name in COUNTS)
    return next((count for count in counts if isinstance(count, int) and count > 0), None)


def _config_of(folder: Path) -> Mapping[str, Any]:
    try:
        return parse_object(NAME, (folder / NAME).read_bytes())
    except (InvalidCheckpointError, OSError, ValueError):
        return {}
