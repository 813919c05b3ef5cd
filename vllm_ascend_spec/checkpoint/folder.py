"""Where a checkpoint is: a folder, a name in a hub's cache, or nowhere."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from vllm_ascend_spec.checkpoint.hub import Hub, current_hub
from vllm_ascend_spec.errors import CheckpointError

# vLLM's variable for a file that maps names of models to folders.
REDIRECT = "VLLM_MODEL_REDIRECT_PATH"
NO_HOME = "vLLM does not know what ~ stands for; give the whole path"
FILE, NO_URL = "file://", "vLLM takes no URL of a file; give the path itself"
HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


def find_folder(option: str, model: str, revision: str | None = None) -> Path | None:
    """Return the local folder of a checkpoint, or None if only a hub can have it.

    If the hub is off, the folder in its cache is returned. If it is on, the hub may have a newer
    version, so what is cached is left to vLLM.

    Raises:
        CheckpointError: ``model`` is meant as a path and is not a checkpoint's folder, or the hub
            is off and its cache does not have the model.
    """
    folder = _local(option, model)
    if folder is not None or "://" in model:
        return folder
    hub = current_hub()
    if hub.offline is None:
        return None
    cached = hub.cached(model, revision)
    if cached is None:
        at = f" at revision {revision!r}" if revision else ""
        raise _not_cached(option, model, hub, at)
    # Its weights may be elsewhere (--download-dir); then there is nothing here to check.
    return cached if any(cached.glob("*.safetensors")) else None


def find_target(model: str) -> Path | None:
    """Return the target's folder, or None if a hub has it: its revision is not known here.

    Raises:
        CheckpointError: as :func:`find_folder` does.
    """
    folder = _local("model", model)
    hub = current_hub()
    if folder is None and "://" not in model and hub.offline and not hub.has_some(model):
        raise _not_cached("model", model, hub, "")
    return folder


def check_target(model: str) -> None:
    """Refuse a target that is a path to nothing; vLLM itself checks what an existing path holds.

    Raises:
        CheckpointError: nothing is there, and no hub can have a model of that name.
    """
    if model.startswith(FILE):
        raise CheckpointError("model", model, NO_URL)
    is_elsewhere = "://" in model or os.environ.get(REDIRECT)
    # A name with a colon may be for another package, e.g. a file in a hub's repository.
    if is_elsewhere or ":" in model or not model or os.path.exists(model):
        return
    if model.startswith("~"):
        raise CheckpointError("model", model, NO_HOME)
    if _is_path(model):
        raise CheckpointError("model", model, _nowhere())


def doubts_about(models: Mapping[str, str | None]) -> list[str]:
    """Return a warning for each name on a hub that begins with the name of an existing folder.

    It may be meant as a path: ``Qwen/Qwen3-8B`` next to a folder ``Qwen`` that does not have it.

    Args:
        models: names of models by the option that gives them.
    """
    found = (_doubt_about(option, model) for option, model in models.items() if model)
    return [doubt for doubt in found if doubt is not None]


def _doubt_about(option: str, model: str) -> str | None:
    first, _, rest = model.partition("/")
    is_beside = first and rest and Path(first).is_dir()
    if not is_beside or os.path.exists(model) or os.environ.get(REDIRECT):
        return None
    return str(CheckpointError(option, model, f"{_nowhere()}, so a hub's model is meant"))


def _not_cached(option: str, model: str, hub: Hub, at: str) -> CheckpointError:
    problem = f"is neither a folder nor in {hub.name}'s cache{at}, and {hub.offline} is set"
    return CheckpointError(option, model, problem)


def _local(option: str, model: str) -> Path | None:
    """Return the folder that ``model`` is, or None if it can only be a hub's name or a URL."""
    try:
        path = Path(model).expanduser()
        if path.is_dir():
            if not os.path.lexists(path / "config.json"):
                raise CheckpointError(option, model, "the folder has no config.json")
            return path
        if path.exists():
            raise CheckpointError(option, model, "is a file; give the checkpoint's folder")
    except RuntimeError:
        raise CheckpointError(option, model, "there is no such user's home") from None
    except OSError as error:
        raise CheckpointError(option, model, f"cannot be read: {error.strerror}") from None
    if "://" not in model and _is_path(model):
        raise CheckpointError(option, model, _nowhere())
    return None


def _is_path(model: str) -> bool:
    """Tell whether no hub can have a model of that name."""
    return not HUB_ID.fullmatch(model) or model.startswith((".", "~"))


def _nowhere() -> str:
    return f"there is no such folder (looked in {Path.cwd()})"
