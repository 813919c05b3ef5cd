"""Which method a draft is for, where nobody says it: the old options told it by the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vllm_ascend_spec.config.checkpoint import speculators
from vllm_ascend_spec.config.checkpoint.config_json import NAME, read_config
from vllm_ascend_spec.config.checkpoint.files import read_checkpoint
from vllm_ascend_spec.config.checkpoint.problem import UnusableError
from vllm_ascend_spec.config.checkpoint.safetensors import parse_object

EAGLE, EAGLE3, DRAFT_MODEL = "eagle", "eagle3", "draft_model"
# As the guides have it, where a checkpoint says nothing of how many drafts it makes.
DEFAULT_DRAFTS = 5
# Of config.json; vLLM's EAGLEConfig calls all of its heads "eagle" unless they say more.
BY_TYPE = {
    "medusa": "medusa",
    "mlp_speculator": "mlp_speculator",
    "eagle3": EAGLE3,
    "eagle": EAGLE,
}
# Parts of architectures and of names on a hub, in lower case; the first one that fits.
BY_NAME = {
    "eagle3": EAGLE3,
    "eagle-3": EAGLE3,
    "eagle": EAGLE,
    "medusa": "medusa",
    "mlpspeculator": "mlp_speculator",
    "mlp-speculator": "mlp_speculator",
    "accelerator": "mlp_speculator",
    "dflash": "dflash",
}
# Targets whose own layers draft, and where their configs say so.
MTP = "mtp"
MTP_COUNTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers")
MTP_NAMES = ("deepseek-v3", "deepseek-r1")
# A head's first layer joins states of the target: one and a token's embedding, or three in EAGLE-3.
JOIN = "fc.weight"
COUNTS = ("num_heads", "medusa_num_heads", "n_predict")


def method_of(model: str) -> tuple[str, str]:
    """Return the method that a draft is for, and by what that was told.

    Args:
        model: a folder or a hub's name.
    """
    folder = Path(model).expanduser()
    found = _by_folder(folder) if (folder / NAME).is_file() else None
    if found is not None:
        return found, "by its checkpoint"
    lowered = folder.name.lower()
    named = next((method for part, method in BY_NAME.items() if part in lowered), None)
    if named is not None:
        return named, "by its name"
    return DRAFT_MODEL, "as nothing says that it is a head"


def has_mtp_layers(model: str) -> bool:
    """Tell whether a target has layers that draft: of its folder, or by the hub's name."""
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


def _by_folder(folder: Path) -> str | None:
    config = _config_of(folder)
    if speculators.is_speculators(config):
        return str(config.get(speculators.ALGORITHM))
    architectures = config.get("architectures")
    names = "".join(map(str, architectures)) if isinstance(architectures, list) else ""
    by_type = BY_TYPE.get(str(config.get("model_type")))
    by_name = next((m for part, m in BY_NAME.items() if part in names.lower()), None)
    if (found := by_name or by_type) not in (None, EAGLE):
        return found
    return _by_tensors(folder) or found


def _by_tensors(folder: Path) -> str | None:
    """Tell a head by its first layer; its config may be that of the model it is a layer of."""
    try:
        tensors, config = read_checkpoint(folder), read_config(folder)
    except (UnusableError, OSError):
        return None
    join = next((t for name, t in tensors.items() if name.endswith(JOIN)), None)
    if join is None or len(join.shape) != 2:
        return None
    return EAGLE if config.get("hidden_size") == join.shape[1] / 2 else EAGLE3


def _config_of(folder: Path) -> Mapping[str, Any]:
    try:
        return parse_object(NAME, (folder / NAME).read_bytes())
    except (UnusableError, OSError, ValueError):
        return {}
