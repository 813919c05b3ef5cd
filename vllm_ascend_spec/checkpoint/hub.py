"""What the caches of Hugging Face and ModelScope hold, read with their own packages where possible.

Nothing is fetched. Importing ``huggingface_hub.constants`` takes some milliseconds; the functions
that follow its references are imported only when the cache is searched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

TRUE = ("1", "ON", "YES", "TRUE")
MODELSCOPE_REVISIONS = ("master", "main")


@dataclass(frozen=True)
class Hub:
    """Where a model's name is looked up.

    Attributes:
        name: for messages.
        offline: the variable that keeps vLLM from asking the hub, or None if it may ask.
    """

    name: str
    offline: str | None

    def cached(self, model: str, revision: str | None = None) -> Path | None:
        """Return the folder in the cache that vLLM would load without asking the hub, or None."""
        places = _modelscope if self.name == MODELSCOPE else _hugging_face
        return next((place for place in places(model, revision) if _is_model(place)), None)

    def has_some(self, model: str) -> bool:
        """Return whether the cache has any revision of a model."""
        if self.name == MODELSCOPE:
            snapshots = _modelscope_cache() / "models" / model.replace("/", "--") / "snapshots"
        else:
            snapshots = _hub_cache() / ("models--" + model.replace("/", "--")) / "snapshots"
        return any(map(_is_model, _content(snapshots))) or self.cached(model) is not None


MODELSCOPE, HUGGING_FACE = "ModelScope", "Hugging Face"


def current_hub() -> Hub:
    """Return the hub that vLLM uses; ``VLLM_USE_MODELSCOPE`` is read as vLLM reads it."""
    modelscope = os.environ.get("VLLM_USE_MODELSCOPE", "").strip().lower() in ("1", "true")
    return Hub(MODELSCOPE if modelscope else HUGGING_FACE, _offline())


def _constants() -> ModuleType | None:
    try:
        from huggingface_hub import constants
    except ImportError:
        return None
    return constants


def _offline() -> str | None:
    """Return the variable that turns the hub off, or None; vLLM obeys it with ModelScope, too."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    given = next((name for name in names if os.environ.get(name)), names[0])
    if (constants := _constants()) is not None:
        return given if constants.HF_HUB_OFFLINE else None
    return given if os.environ.get(given, "").upper() in TRUE else None


def _expanded(variable: str, default: Path) -> Path:
    value = os.environ.get(variable)
    return default if value is None else Path(os.path.expandvars(value)).expanduser()


def _hub_cache() -> Path:
    """Return Hugging Face's cache, from its documented variables if its package is missing."""
    if (constants := _constants()) is not None:
        return Path(constants.HF_HUB_CACHE)
    cache = _expanded("XDG_CACHE_HOME", Path.home() / ".cache")
    home = _expanded("HF_HOME", cache / "huggingface")
    return _expanded("HF_HUB_CACHE", _expanded("HUGGINGFACE_HUB_CACHE", home / "hub"))


def _hugging_face(model: str, revision: str | None) -> Iterator[Path]:
    """Yield the snapshot of a revision: a commit, or a branch or tag that ``refs`` leads to."""
    if _constants() is not None:
        from huggingface_hub import try_to_load_from_cache

        try:
            found = try_to_load_from_cache(
                model, "config.json", cache_dir=_hub_cache(), revision=revision
            )
        except ValueError:  # the name is not valid on a hub
            return
        if isinstance(found, str):
            yield Path(found).parent
        return
    root = _hub_cache() / ("models--" + model.replace("/", "--"))
    revision = revision or "main"
    reference = root / "refs" / revision
    commit = reference.read_text().strip() if reference.is_file() else revision
    yield root / "snapshots" / commit


def _modelscope_cache() -> Path:
    return _expanded("MODELSCOPE_CACHE", Path.home() / ".cache" / "modelscope")


def _modelscope(model: str, revision: str | None) -> Iterator[Path]:
    """Yield the folders in which releases of modelscope have kept a model, in its search order.

    1.38 and later first read the two folders of earlier releases, then their own snapshots by
    revision, and last the folders from before ``models`` existed. See
    ``find_reusable_legacy_repo_dir`` in modelscope and ``_find_legacy_repo_dir`` in modelscope_hub.
    """
    base = _modelscope_cache()
    owner, _, name = model.partition("/")
    safe = name.replace(".", "___")
    for root in (base / "models", base / "hub" / "models"):
        yield root / owner / safe
    snapshots = base / "models" / model.replace("/", "--") / "snapshots"
    if revision is not None:
        yield snapshots / revision
    else:
        yield from (snapshots / branch for branch in MODELSCOPE_REVISIONS)
        revisions = _content(snapshots)
        yield from revisions if len(revisions) == 1 else ()
    for root in (base, base / "hub", base / "models"):
        yield from (root / owner / spelt for spelt in (name, safe))


def _content(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _is_model(folder: Path) -> bool:
    return (folder / "config.json").exists()
