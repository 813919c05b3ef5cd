"""Entry points that vLLM calls: which platform to use, and what to mend before an engine starts."""

from __future__ import annotations

import logging

from vllm_ascend_spec import versions
from vllm_ascend_spec.errors import PlatformError, UnsupportedVersionError
from vllm_ascend_spec.log import log_once
from vllm_ascend_spec.platform import ascend_host, select


def register_platform() -> str | None:
    """``vllm.platform_plugins``: return the qualified name of our platform, or None to stand aside.

    vLLM swallows what is raised here, so problems are told by :func:`register_general`.
    """
    found = versions.installed_vllm()
    if found is None or not versions.is_supported(found[1]):
        return None
    choice = choose()
    if choice.note:
        log_once(choice.note_level, choice.note)
    if choice.platform is not None:
        from vllm_ascend_spec.compat import cpu_distribution_name

        cpu_distribution_name.apply()
    return choice.platform


def choose() -> select.Choice:
    """Choose the platform, and see whether it can be imported."""
    choice = select.select_platform()
    if choice.platform is None or select.detect_device() != "npu":
        return choice
    problem = ascend_host.import_problem()
    return select.refuse(problem) if problem else choice


def register_general() -> None:
    """``vllm.general_plugins``: check the version and install the checks of bad input.

    Raises:
        UnsupportedVersionError: this vLLM is not supported and ours would be in use.
        PlatformError: there is a device, and something in the way of using it.
    """
    if select.stands_aside_for_another_platform():
        return
    try:
        versions.require_vllm()
    except UnsupportedVersionError as error:
        log_once(logging.ERROR, str(error))
        raise
    choice = choose()
    if choice.is_refusal:
        log_once(choice.note_level, choice.note)
        raise PlatformError(choice.note)
    if choice.platform is None:
        return
    from vllm_ascend_spec.compat import engine_preflight, unguarded_script

    engine_preflight.apply()
    unguarded_script.apply()
