"""Checks of a draft model's options against the target and its engine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from vllm_ascend_spec.checkpoint.config_json import read_config, text_of
from vllm_ascend_spec.checkpoint.draft import Draft
from vllm_ascend_spec.checkpoint.errors import blame
from vllm_ascend_spec.checkpoint.folder import FILE, NO_HOME, NO_URL, find_folder, find_target
from vllm_ascend_spec.config.detect import DRAFT_MODEL, MTP, by_path
from vllm_ascend_spec.config.draft_tp import check_split
from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.config.parallel_drafting import in_one_pass
from vllm_ascend_spec.errors import CheckpointError, ConfigError

MODEL, TARGET = "speculative_config.model", "model"
# With these rope types vLLM does not multiply max_position_embeddings by a factor.
UNSCALED = (None, "default", "llama3", "yarn", "su", "longrope")


def check_draft_options(request: SpecInput) -> None:
    """Check the draft's checkpoint and what the engine's options say about it.

    Raises:
        ConfigError: naming the option, its value and what is valid.
    """
    if not request.method.needs_checkpoint:
        return
    if (model := request.spec.get("model")) is not None:
        check_name(MODEL, model)
    check_vocabularies(request)
    check_split(request)
    folder = None if request.engine.load_format == "dummy" else _folder_of(request)
    if folder is not None:
        _check_folder(request, folder)
    # Last: a head of another method is told by what it is.
    check_path(request)


def _check_folder(request: SpecInput, folder: Path) -> None:
    """Check a draft that is on this machine."""
    target = find_target(request.model) if request.model else None
    other_vocabulary = request.spec.get("use_heterogeneous_vocab")
    same = None if other_vocabulary else target
    check_checkpoint(request, folder, same)
    check_length(request, folder, target)


def _folder_of(request: SpecInput) -> Path | None:
    """Return the draft's folder, or None if it is not on this machine."""
    model = request.spec.get("model")
    if model is not None:
        return find_folder(MODEL, model, request.spec.get("revision"))
    return find_target(request.model) if request.model else None


def check_checkpoint(request: SpecInput, folder: Path, target: Path | None) -> None:
    """Check the draft in a local folder as its method requires.

    Args:
        request: method, model and options.
        folder: the draft's folder.
        target: the target's folder, or None if it is elsewhere or need not fit the draft.

    Raises:
        CheckpointError: saying what is there and what is valid.
    """
    spec, load_format = request.spec, request.engine.load_format
    own = spec.get("draft_load_config")
    if isinstance(own, Mapping):
        load_format = str(own.get("load_format", "auto"))
    check = request.method.check_checkpoint
    if check is None or load_format == "dummy":
        return
    device = request.engine.device
    model = spec.get("model")
    check(
        Draft(
            TARGET if model is None else MODEL,
            model or str(request.model),
            folder,
            target,
            load_format,
            spec.get("quantization"),
            device.family if device is not None else None,
            in_one_pass(request),
        )
    )


def check_vocabularies(request: SpecInput) -> None:
    """Raise if drafts of another vocabulary are to be sampled."""
    how = request.spec.get("draft_sample_method")
    if request.spec.get("use_heterogeneous_vocab") and how == "probabilistic":
        raise ConfigError(
            "speculative_config.draft_sample_method",
            how,
            "not possible with use_heterogeneous_vocab; valid: 'auto', 'greedy'",
        )


def check_length(request: SpecInput, draft: Path, target: Path | None) -> None:
    """Raise if requests with drafts may be longer than the draft or the target allows."""
    wanted = request.spec.get("max_model_len")
    if wanted is None:
        return
    limits = {"the target's --max-model-len": request.engine.max_model_len}
    folders = {"the target's": target}
    if os.environ.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "0") in ("", "0"):
        folders["the draft's"] = draft
    for whose, folder in folders.items():
        if folder is not None:
            limits[f"{whose} max_position_embeddings"] = longest_of(folder)
    for whose, limit in limits.items():
        if limit is not None and 0 < limit < wanted:
            raise ConfigError(
                "speculative_config.max_model_len", wanted, f"valid: up to {limit}, {whose}"
            )


def longest_of(folder: Path) -> int | None:
    """Return a checkpoint's context length if its config states it in the usual way, else None."""
    with blame(MODEL, str(folder)):
        config = text_of(read_config(folder))
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    scaling = rope.get("rope_type", rope.get("type")) if isinstance(rope, dict) else "unknown"
    longest = config.get("max_position_embeddings")
    is_plain = isinstance(longest, int) and scaling in UNSCALED and "model_max_length" not in config
    return longest if is_plain else None


def check_path(request: SpecInput) -> None:
    """Refuse a path by which vLLM takes the draft for a head of another method.

    It obeys only a method that is itself one of those that paths tell
    (vllm/config/speculative.py:SpeculativeConfig.__post_init__).

    Raises:
        CheckpointError: naming the part of the path.
    """
    named = request.spec.get("model")
    path = named or request.model
    if not path:
        return
    told, given = by_path(str(path)), request.method.vllm_method or request.method.name
    if told is not None and given in (DRAFT_MODEL, MTP):
        problem = (
            f"vLLM takes it for method {told.method!r}, as {told.name!r} is in the path; valid for "
            f"method {given!r}: another path, such as that of a link (ln -s)"
        )
        raise CheckpointError(MODEL if named else TARGET, path, problem)


def check_name(option: str, model: object) -> None:
    """Raise unless ``model`` can be looked up; it need not exist.

    Raises:
        CheckpointError: it is not a string, is empty, is too long for the file system, or begins
            with ``~`` or ``file://``.
    """
    if not isinstance(model, str) or not model:
        raise CheckpointError(option, model, "must be a folder or a hub's name")
    if model.startswith("~"):
        raise CheckpointError(option, model, NO_HOME)
    if model.startswith(FILE):
        raise CheckpointError(option, model, NO_URL)
    try:
        Path(model).stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CheckpointError(
            option, model, f"cannot be a folder or a hub's name: {reason}"
        ) from None
