"""Choose the device and its platform. Imports nothing heavy, so that it never fails.

With vllm-ascend installed, our platform is active only if ``VLLM_PLUGINS`` names ``ascend_spec``
and not ``ascend``: vllm-ascend's platform is active whenever it is loaded, and vLLM accepts one.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass

from vllm_ascend_spec.config.device import Device
from vllm_ascend_spec.devices import plugins, registry
from vllm_ascend_spec.errors import ConfigError, ExtensionError, did_you_mean

# Overrides detection.
DEVICE_VARIABLE = "VLLM_ASCEND_SPEC_DEVICE"
NOT_YET = (
    "vllm-ascend-spec found {device}, for which this release has no platform yet; "
    "vLLM runs as if the plugin were not installed."
)
STANDS_ASIDE = (
    "vllm-ascend's platform is active, so vllm-ascend-spec is not used. To choose it, set "
    "VLLM_PLUGINS to a list that names ascend_spec and not ascend."
)
NO_DEVICE = (
    "vllm-ascend-spec found no device that this build of vLLM can use, and does nothing; "
    "`vllm-ascend-spec info` shows what is installed."
)
SPACES = (
    "VLLM_PLUGINS={value!r}: vLLM takes spaces for parts of the names, so it does not find "
    "ascend_spec. Remedy: write it without spaces."
)
# For building vLLM.
BUILD_VARIABLE = "VLLM_TARGET_DEVICE"
BUILT_FOR = (
    f"{BUILD_VARIABLE}=cpu makes vLLM ignore all plugins for platforms. Remedy: unset it; it is "
    f"for building vLLM, and {DEVICE_VARIABLE}=cpu chooses the CPU."
)
TWO_PLATFORMS = (
    "VLLM_PLUGINS names both ascend and ascend_spec, but vLLM can have only one platform. Remedy: "
    "take ascend out of the list to use vllm-ascend-spec (`vllm-ascend-spec env` prints the "
    "line), or ascend_spec to use vllm-ascend alone."
)


@dataclass(frozen=True)
class DeviceChoice:
    """The platform to use.

    Attributes:
        platform: qualified class name, or None to leave the choice to vLLM.
        note: what to tell the user, once; empty if nothing.
        note_level: logging level of the note.
        is_refusal: whether no engine can start; the note says why.
    """

    platform: str | None
    note: str = ""
    note_level: int = logging.INFO
    is_refusal: bool = False


def refuse(note: str) -> DeviceChoice:
    """Return a choice without a platform, for a reason that the user has to remove."""
    return DeviceChoice(None, note, logging.ERROR, is_refusal=True)


def find_device() -> Device | None:
    """Return the kind of device that the user named, else the first one that is found.

    Raises:
        ConfigError: ``VLLM_ASCEND_SPEC_DEVICE`` names no device.
        ExtensionError: a device of another package cannot be used.
    """
    devices = registry.all_devices()
    if wanted := os.environ.get(DEVICE_VARIABLE):  # a template may leave it empty
        if wanted not in devices:
            problem = f"{did_you_mean(wanted, devices, 0.7)}valid: {', '.join(devices)}"
            raise ConfigError(DEVICE_VARIABLE, wanted, problem)
        return devices[wanted]
    return next((device for device in devices.values() if device.find()), None)


def select_platform() -> DeviceChoice:
    """Choose the platform of this process."""
    if problem := _why_vllm_ignores_us():
        # No refusal: engines without speculation run.
        return DeviceChoice(None, problem, logging.ERROR)
    if plugins.stands_aside_for_another_platform():
        # If VLLM_PLUGINS leaves us out on purpose, vLLM does not call us, and we say nothing.
        return DeviceChoice(None, STANDS_ASIDE if plugins.allowed_plugins() is None else "")
    allowed = plugins.allowed_plugins() or ()
    if plugins.VLLM_ASCEND_PLUGIN in allowed and plugins.has_vllm_ascend():
        return refuse(TWO_PLATFORMS)
    try:
        device = find_device()
    except (ConfigError, ExtensionError) as error:
        return refuse(str(error))
    if device is None:
        return DeviceChoice(None, NO_DEVICE, logging.WARNING)
    return choose_platform_of(device)


def _why_vllm_ignores_us() -> str | None:
    if plugins.is_spaced():
        return SPACES.format(value=os.environ[plugins.VARIABLE])
    is_built_for = os.environ.get(BUILD_VARIABLE, "").lower() == "cpu"
    return BUILT_FOR if is_built_for and not plugins.stands_aside_for_another_platform() else None


def choose_platform_of(device: Device) -> DeviceChoice:
    """Choose the platform of a device that was found."""
    if problem := device.host_problem():
        return refuse(problem)
    if device.platform is None:
        return DeviceChoice(None, NOT_YET.format(device=device.about), logging.WARNING)
    if warning := device.host_warning():
        return DeviceChoice(device.platform, warning, logging.WARNING)
    return DeviceChoice(device.platform)
