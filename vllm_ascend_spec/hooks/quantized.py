"""Recognize a quantized checkpoint by its description file, and check it before loading.

On an NPU vllm-ascend does both.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from vllm_ascend_spec.checkpoint.errors import blame
from vllm_ascend_spec.checkpoint.folder import find_target
from vllm_ascend_spec.devices.select import find_device
from vllm_ascend_spec.log import log_once
from vllm_ascend_spec.quantization.description import NAME, check_checkpoint

METHOD = "ascend"
# Methods whose own weights, not the target's, draft from the target's hidden states.
FROM_STATES = ("eagle", "eagle3", "hybrid", "medusa", "mlp_speculator", "dflash", "dspark")
ROTATED = (
    "The model's states are rotated (QuaRot, optional.quarot in its " + NAME + "), which only "
    "vllm-ascend undoes for a head: method {method!r} will have hardly any drafts accepted here, "
    "unless its head was trained on such states."
)


def detect(args: Any) -> None:
    """Set ``--quantization ascend`` if the model has the description of such a quantization.

    Args:
        args: an ``EngineArgs`` or a parsed command line.
    """
    if args.quantization is not None or _is_anothers() or not _has_description(_model_of(args)):
        return
    args.quantization = METHOD
    log_once(logging.INFO, f"The model has a {NAME}: --quantization {METHOD}.")


def check(args: Any, spec: Any = None) -> None:
    """Check the target of ``--quantization ascend``.

    Args:
        args: an ``EngineArgs`` or a parsed command line.
        spec: the speculative config; None without one.

    Raises:
        CheckpointError: the description or the tensors are wrong; names the key.
    """
    if getattr(args, "quantization", None) != METHOD or str(args.load_format) == "dummy":
        return
    folder = None if _is_anothers() else find_target(_model_of(args))
    if folder is not None:
        with blame("model", _model_of(args)):
            description = check_checkpoint(folder)
        options = spec if isinstance(spec, dict) else {}
        # The model half of ``hybrid`` has a method of its own.
        method = options.get("hybrid_model_method", options.get("method"))
        if description.is_rotated and method in FROM_STATES:
            log_once(logging.WARNING, ROTATED.format(method=method))


def _model_of(args: Any) -> str:
    return getattr(args, "model_tag", None) or args.model


def _has_description(model: str) -> bool:
    try:
        return (Path(model).expanduser() / NAME).is_file()
    except (OSError, RuntimeError, ValueError):  # a name that is no path
        return False


def _is_anothers() -> bool:
    """Tell whether vllm-ascend, not we, handles quantization on this device."""
    device = find_device()
    return device is not None and device.family == "ascend"
