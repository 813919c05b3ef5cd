"""Is a draft checkpoint there, loadable, and made for this target? Reads JSON and headers only."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from vllm_ascend_spec.errors import CheckpointError

PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt")
HEADER_PREFIX = 8
HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


def find_folder(option: str, model: str) -> Path | None:
    """Return the local folder of a checkpoint, or None if ``model`` can only be a hub's name.

    Raises:
        CheckpointError: ``model`` is meant as a path and is not a checkpoint's folder.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise CheckpointError(option, model, "the folder has no config.json")
        return path
    if path.exists():
        raise CheckpointError(option, model, "is a file; give the checkpoint's folder")
    is_path = not HUB_ID.fullmatch(model) or model.startswith((".", "~"))
    first = Path(model).parts[0] if model else ""
    if is_path or ("/" in model and Path(first).is_dir()) or "://" in model:
        if "://" in model:
            return None
        raise CheckpointError(option, model, f"there is no such folder (looked in {Path.cwd()})")
    if os.environ.get("HF_HUB_OFFLINE") == "1" and not _in_hub_cache(model):
        raise CheckpointError(
            option, model, "is neither a folder nor in the hub's cache, and HF_HUB_OFFLINE is 1"
        )
    return None


def _in_hub_cache(model: str) -> bool:
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    return (cache / ("models--" + model.replace("/", "--"))).is_dir()


def read_config(option: str, model: str, folder: Path) -> dict[str, Any]:
    """Return ``config.json`` of a checkpoint; the text part of a multimodal one.

    Raises:
        CheckpointError: it is not a JSON object.
    """
    try:
        config = json.loads((folder / "config.json").read_text())
    except ValueError as error:
        raise CheckpointError(option, model, f"config.json is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise CheckpointError(option, model, "config.json is not a JSON object")
    text = config.get("text_config", config)
    return text if isinstance(text, dict) else config


def tensor_shapes(option: str, model: str, folder: Path) -> dict[str, list[int]]:
    """Return the shape of every tensor in the folder's safetensors files.

    Raises:
        CheckpointError: a file is empty, cut short within its header, or something else, e.g. a
            Git LFS pointer.
    """
    shapes: dict[str, list[int]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            header = _read_header(path)
            shapes.update({name: list(entry["shape"]) for name, entry in header.items()})
        except (ValueError, TypeError, KeyError, AttributeError):
            raise CheckpointError(
                option, model, f"{path.name} is not a safetensors file; was it fetched whole?"
            ) from None
    return shapes


def _read_header(path: Path) -> dict[str, Any]:
    """Read a safetensors header: eight bytes of little-endian length, then JSON of that length."""
    with path.open("rb") as file:
        prefix = file.read(HEADER_PREFIX)
        length = int.from_bytes(prefix, "little")
        if len(prefix) < HEADER_PREFIX or length > path.stat().st_size:
            raise ValueError(path.name)
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return header


def require_safetensors(option: str, model: str, folder: Path) -> None:
    """Raise unless the folder has safetensors weights.

    Raises:
        CheckpointError: the weights are pickled or missing.
    """
    if any(folder.glob("*.safetensors")):
        return
    pickled = sorted(p.name for p in folder.iterdir() if p.suffix in PICKLE_SUFFIXES)
    if pickled:
        raise CheckpointError(
            option,
            model,
            f"its weights are pickled ({pickled[0]}), which can run code when loaded; valid: "
            "*.safetensors (load it once with transformers and call save_pretrained)",
        )
    raise CheckpointError(option, model, "the folder has no weights; valid: *.safetensors")


def require_same(
    option: str, model: str, draft: dict[str, Any], target: dict[str, Any], names: tuple[str, ...]
) -> None:
    """Raise unless draft and target agree in the named entries of their configs.

    Raises:
        CheckpointError: naming the first entry that differs.
    """
    for name in names:
        ours, theirs = draft.get(name), target.get(name)
        if ours is not None and theirs is not None and ours != theirs:
            raise CheckpointError(
                option,
                model,
                f"its {name} is {ours}, the target's is {theirs}; "
                "a draft has to be made for its target",
            )


def check_eagle(option: str, model: str, folder: Path, target: Path | None) -> None:
    """Check an EAGLE head against its target."""
    require_safetensors(option, model, folder)
    config = read_config(option, model, folder)
    if target is not None:
        names = ("vocab_size", "hidden_size")
        require_same(option, model, config, read_config("model", str(target), target), names)
    shape = tensor_shapes(option, model, folder).get("fc.weight")
    if shape is None:
        raise CheckpointError(
            option,
            model,
            "is not an EAGLE head (no tensor fc.weight); for an ordinary model use "
            "method 'draft_model'",
        )
    hidden = config.get("hidden_size")
    if not isinstance(hidden, int):
        raise CheckpointError(option, model, "config.json names no hidden_size")
    if shape != [hidden, 2 * hidden]:
        raise CheckpointError(
            option,
            model,
            f"fc.weight is {shape}, an EAGLE head of hidden_size {hidden} has "
            f"[{hidden}, {2 * hidden}]",
        )


def check_draft_model(option: str, model: str, folder: Path, target: Path | None) -> None:
    """Check an ordinary draft model against its target."""
    require_safetensors(option, model, folder)
    if target is not None:
        config = read_config(option, model, folder)
        theirs = read_config("model", str(target), target)
        require_same(option, model, config, theirs, ("vocab_size",))
    if "fc.weight" in tensor_shapes(option, model, folder):
        raise CheckpointError(option, model, "is an EAGLE head; use method 'eagle'")


CHECKS = {"eagle": check_eagle, "draft_model": check_draft_model}
