"""Find out whose plugins vLLM loads on this host: ours, vllm-ascend's or both."""

from __future__ import annotations

import os
from importlib import metadata

VARIABLE = "VLLM_PLUGINS"
PLUGIN_NAME = "ascend_spec"
VLLM_ASCEND = "vllm-ascend"
VLLM_ASCEND_PLUGIN = "ascend"
PLATFORM_PLUGINS = "vllm.platform_plugins"
GENERAL_PLUGINS = "vllm.general_plugins"


def allowed_plugins() -> list[str] | None:
    """Return the names in ``VLLM_PLUGINS``, or None where it is unset (vLLM then loads all).

    vLLM takes spaces for parts of the names.
    """
    value = os.environ.get(VARIABLE)
    return None if value is None else value.split(",")


def is_spaced() -> bool:
    """Tell whether ``VLLM_PLUGINS`` names us with a space, so that vLLM does not find us."""
    allowed = allowed_plugins() or []
    return PLUGIN_NAME not in allowed and PLUGIN_NAME in [name.strip() for name in allowed]


def has_vllm_ascend() -> bool:
    """Tell whether vllm-ascend's platform plugin is installed; it always activates itself."""
    found = metadata.entry_points(group=PLATFORM_PLUGINS)
    return any(entry.name == VLLM_ASCEND_PLUGIN for entry in found)


def vllm_ascend_plugins() -> list[str]:
    """Return the names of vllm-ascend's general plugins, in order."""
    found = metadata.entry_points(group=GENERAL_PLUGINS)
    return sorted(
        entry.name
        for entry in found
        if entry.dist is not None and entry.dist.name.replace("_", "-") == VLLM_ASCEND
    )


def stands_aside_for_another_platform() -> bool:
    """Tell whether ``VLLM_PLUGINS`` leaves us out, or is unset with vllm-ascend installed."""
    allowed = allowed_plugins()
    if allowed is not None:
        return PLUGIN_NAME not in allowed
    return has_vllm_ascend()
