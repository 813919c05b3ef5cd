"""The window of a draft model's attention: how it is asked for, and where it cannot be used.

Ours is ``additional_config.ascend_spec.draft_window``; vllm-ascend's own name for a fixed one,
``additional_config.draft_window_size``, means the same on every device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.checkpoint.folder import find_folder, find_target
from vllm_ascend_spec.config.draft_loop import cause_against_our_loop
from vllm_ascend_spec.config.draft_options import MODEL, longest_of
from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.config.schema import AUTO, SECTION, STOCK
from vllm_ascend_spec.config.values import int_in
from vllm_ascend_spec.errors import CheckpointError, ConfigError
from vllm_ascend_spec.upstream.limits import NO_LOOP_ON_NPU

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput

NAME, OTHER_NAME = "draft_window", "draft_window_size"
OPTION, OTHER_OPTION = f"additional_config.{SECTION}.{NAME}", f"additional_config.{OTHER_NAME}"
# Windows that "auto" tries, in tokens. vllm-ascend's guide has 512 to 4096 as typical ones.
SIZES = (256, 1024, 4096)
NO_LONGER = "no text with drafts is longer than {} tokens"
# Attribute of a scheduler output: the window of the step, if the scheduler chooses it.
OF_STEP = "ascend_spec_window"


def set_window(scheduled: SchedulerOutput, size: int | None) -> None:
    """Set the window of a step, in tokens; None for the whole text."""
    setattr(scheduled, OF_STEP, size)


def window_of(scheduled: SchedulerOutput) -> int | None:
    """Return the window that the scheduler has chosen for a step; None for the whole text."""
    return getattr(scheduled, OF_STEP, None)


def sizes_below(context: int) -> tuple[int, ...]:
    """Return the windows that ``auto`` tries with texts of up to ``context`` tokens."""
    return tuple(size for size in SIZES if size < context)


def draft_window_of(request: SpecInput) -> int | str | None:
    """Return the window in tokens, ``auto``, or None for the whole text."""
    return asked_for(request)[1] if reason_without_effect(request) is None else None


def asked_for(request: SpecInput) -> tuple[str, int | str | None]:
    """Return the option that asks for a window, and its value; None if none does."""
    ours, theirs = request.section.get(NAME), _of_vllm_ascend(request.additional)
    return (OPTION, ours) if ours is not None else (OTHER_OPTION, theirs)


def reason_without_effect(request: SpecInput) -> str | None:
    """Return why a window has no effect with the method and on the device, or None."""
    name, device = request.method.name, request.engine.device
    if not request.method.has_draft_loop:
        return f"method {name!r}, which has no draft model that attends to the text"
    is_npu = device is not None and device.family == "ascend"
    if is_npu and "mtp" in (name, request.spec.get("hybrid_model_method")):
        return "MTP layers on an NPU, for which vllm-ascend ignores it"
    return None


def check_draft_window(request: SpecInput) -> None:
    """Refuse two windows, one that changes nothing, and one that cannot be had.

    vllm-ascend's option is not refused where it has no effect, see :func:`window_warnings`.

    Raises:
        ConfigError: naming the option, its value and the reason.
    """
    ours, theirs = request.section.get(NAME), _of_vllm_ascend(request.additional)
    if theirs is not None and (problem := int_in(1)(theirs)):
        raise ConfigError(OTHER_OPTION, theirs, problem)
    if ours is not None and theirs is not None and ours != theirs:
        raise ConfigError(OPTION, ours, f"contradicts {OTHER_OPTION}={theirs}; give one of the two")
    option, window = asked_for(request)
    if window is None:
        return
    reason = reason_without_effect(request)
    if reason is not None:
        if option == OPTION:
            raise ConfigError(option, window, f"has no effect with {reason}; leave it out")
        return
    if (cause := cause_against_window(request)) is not None:
        raise ConfigError(option, window, f"not possible with {cause}; leave it out")
    check_size(option, window, context_of(request))


def window_warnings(request: SpecInput) -> list[str]:
    """Return a warning if vllm-ascend's option is given and changes nothing."""
    option, window = asked_for(request)
    reason = reason_without_effect(request)
    if window is None or reason is None:
        return []
    return [f"{option}={window} has no effect with {reason}."]


def cause_against_window(request: SpecInput) -> str | None:
    """Return what keeps the draft from attending to a window, or None.

    vLLM's own loop has none; vllm-ascend's has one from 0.30 on.
    """
    device = request.engine.device
    if device is not None and device.family == "ascend":
        return NO_LOOP_ON_NPU
    if request.options.draft_loop == STOCK:
        return f"draft_loop={STOCK!r}"
    return cause_against_our_loop(request)


def context_of(request: SpecInput) -> int | None:
    """Return the most tokens of a text with drafts, as far as options and checkpoints tell.

    ``draft_context.py`` has the same by vLLM's configuration.
    """
    asked = request.engine.max_model_len
    longest = asked if asked is not None and asked > 0 else _longest(request, "model")
    own = request.spec.get("max_model_len")
    if own is None and request.spec.get("model") is not None and request.method.name != "mtp":
        own = _longest(request, MODEL)
    return min((length for length in (longest, own) if length is not None), default=None)


def _longest(request: SpecInput, option: str) -> int | None:
    """Return the context in a checkpoint's config; None if it is elsewhere or cannot be read."""
    model = request.model if option != MODEL else request.spec.get("model")
    if model is None:
        return None
    try:
        folder = find_folder(option, model) if option == MODEL else find_target(model)
        return None if folder is None else longest_of(folder)
    except CheckpointError:
        return None  # what is wrong with it is reported by draft_options.py


def _of_vllm_ascend(additional: Mapping[str, Any]) -> Any:
    """Return the value of vllm-ascend's option, which it also reads from a text."""
    value = additional.get(OTHER_NAME)
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def check_size(option: str, window: int | str, context: int | None) -> None:
    """Refuse a window that no text with drafts is longer than.

    Args:
        option: the option that asks for it.
        window: tokens, or ``auto``.
        context: tokens in the longest text with drafts; None if that is not known yet.

    Raises:
        ConfigError: naming the option, its value and what is valid.
    """
    if context is None:
        return
    if window == AUTO:
        if not sizes_below(context):
            problem = f"tries windows from {SIZES[0]} tokens on"
            raise ConfigError(option, window, f"{problem}, and {NO_LONGER.format(context)}")
    elif int(window) >= context:
        problem = f"has no effect: {NO_LONGER.format(context)}"
        raise ConfigError(option, window, f"{problem}; valid: 1 to {context - 1}")
