"""Entry points that vLLM calls to choose the platform and patch vLLM before an engine starts."""

from __future__ import annotations

import logging

from vllm_ascend_spec import versions
from vllm_ascend_spec.devices import select
from vllm_ascend_spec.devices.plugins import stands_aside_for_another_platform
from vllm_ascend_spec.errors import PlatformError, UnsupportedVersionError
from vllm_ascend_spec.log import log_once


def register_platform() -> str | None:
    """``vllm.platform_plugins``: return the qualified name of our platform, or None to stand aside.

    vLLM swallows exceptions raised here, so :func:`register_general` reports problems.
    """
    found = versions.installed_vllm()
    if found is None or not versions.is_supported(found[1]):
        return None
    choice = choose()
    if choice.note:
        log_once(choice.note_level, choice.note)
    if choice.platform is not None:
        from vllm_ascend_spec.hooks import keywords_hook
        from vllm_ascend_spec.patches import registry as patches

        patches.apply("command_line")
        keywords_hook.apply()
    return choice.platform


def choose() -> select.DeviceChoice:
    """Choose the platform, and check that the device's libraries can be imported."""
    choice = select.select_platform()
    device = select.find_device() if choice.platform is not None else None
    problem = device.import_problem() if device is not None else None
    return select.refuse(problem) if problem else choice


def register_general() -> None:
    """``vllm.general_plugins``: check vLLM's version and install the input checks.

    Raises:
        UnsupportedVersionError: this vLLM is not supported, and our platform would be used.
        PlatformError: the platform or the device cannot be used; the message says why.
    """
    if stands_aside_for_another_platform():
        return
    try:
        installed = versions.require_vllm()
    except UnsupportedVersionError as error:
        log_once(logging.ERROR, str(error))
        raise
    choice = choose()
    if choice.note_level >= logging.ERROR:
        log_once(choice.note_level, choice.note)
    if choice.is_refusal:
        raise PlatformError(choice.note)
    if choice.platform is None:
        return
    from vllm_ascend_spec.hooks import engine_hook, untested
    from vllm_ascend_spec.quantization import modelslim

    untested.warn(*installed)
    engine_hook.apply()
    device = select.find_device()
    # On an NPU vllm-ascend registers its own.
    if device is None or device.family != "ascend":
        modelslim.register()
