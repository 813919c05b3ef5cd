"""The checks of ``vllm-ascend-spec check``: our light ones first, then vLLM's own."""

from __future__ import annotations

import argparse
import logging
import re
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec import versions
from vllm_ascend_spec.checkpoint.folder import check_target, doubts_about
from vllm_ascend_spec.cli import check_light
from vllm_ascend_spec.cli.check_command import MODEL as MISSING_MODEL
from vllm_ascend_spec.cli.check_command import device_here, on_device
from vllm_ascend_spec.config.ascend import FULL_MODES
from vllm_ascend_spec.config.capture import DEFAULT_MODE
from vllm_ascend_spec.config.collect import collecting_of
from vllm_ascend_spec.config.device import Device
from vllm_ascend_spec.config.draft_length import because
from vllm_ascend_spec.config.dynamic_k import blocker_of_auto
from vllm_ascend_spec.config.engine import EngineOptions
from vllm_ascend_spec.config.ineffective import LEAVE_OUT, NoEffect, without_effect
from vllm_ascend_spec.config.json_option import check_texts
from vllm_ascend_spec.config.port import check_port
from vllm_ascend_spec.config.problems import Problems
from vllm_ascend_spec.config.resolved import ATTRIBUTE, SpecConfig
from vllm_ascend_spec.config.schema import AUTO
from vllm_ascend_spec.config.speculators_format import read_head
from vllm_ascend_spec.devices import select
from vllm_ascend_spec.errors import AscendSpecError, ConfigError, FlagsError
from vllm_ascend_spec.hooks import parser_hook, preflight, serve_flags
from vllm_ascend_spec.legacy.names import taken, told
from vllm_ascend_spec.messages import plain_line

if TYPE_CHECKING:
    from vllm.config import VllmConfig

# Matches the part of a message that says what to do.
REMEDY = re.compile(
    r"(?:^|[;:,.] )((?:did you mean|valid|nearest|remedy|leave|give|choose|take|set|add|use|name|"
    r"needs?|write|install|decrease|increase|must be)\b.*)",
    re.IGNORECASE,
)
OF_ARGPARSE = re.compile(r"argument ([^:]+): (.*)", re.DOTALL)
NO_DEVICE = (
    "vLLM finds no usable device on this machine, and cannot read its flags without one; --light "
    "checks the flags that affect speculation"
)


@dataclass(frozen=True)
class Problem:
    """Something that would keep an engine from starting.

    Attributes:
        option: the option that is wrong; None if none is.
        message: the error at the start of an engine, in one line.
        remedy: what to do.
    """

    option: str | None
    message: str
    remedy: str


@dataclass
class CheckResult:
    """All findings of a check.

    Attributes:
        device: the kind of device to check for; None if there is none.
        here: the kind of device that vLLM uses on this machine; None if there is none.
        platform: the platform that vLLM uses here; None if an earlier check failed.
        vllm: its distribution and version; None until it is asked.
        model: the target.
        spec: the speculative config as given.
        asked: other options that matter, as given.
        speculation: resolved; None without speculation or after an error.
        engine: vLLM's configuration; None if it was not built.
        problems: what would keep an engine from starting.
        unchecked: why the rest could not be checked; None if it was.
        without_effect: options that change nothing.
        warnings: what an engine warns of at its start.
        notes: what the reader of this report should know.
    """

    device: Device | None = None
    here: Device | None = None
    platform: str | None = None
    vllm: str | None = None
    model: str | None = None
    spec: Any = None
    asked: EngineOptions = field(default_factory=EngineOptions)
    speculation: SpecConfig | None = None
    engine: VllmConfig | None = None
    problems: list[Problem] = field(default_factory=list)
    unchecked: str | None = None
    without_effect: list[NoEffect] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_elsewhere(self) -> bool:
        """Whether the check is for another kind of device than this machine's."""
        return self.device is not None and self.device != self.here


def find(
    arguments: Sequence[str], *, is_light: bool = False, own_device: str | None = None
) -> CheckResult:
    """Check flags of ``vllm serve`` for the device that the environment selects.

    Args:
        arguments: the arguments after ``vllm serve``.
        is_light: whether to check without vLLM.
        own_device: the device variable before ``--device`` and the command's own were set.
    """
    found = CheckResult()
    try:
        check_texts(arguments)
        found.device, found.here = select.find_device(), device_here(own_device)
        namespace, rest = check_light.read(arguments)
    except FlagsError as error:
        if is_light:
            found.problems.append(problem_of(error))
            return found
    except AscendSpecError as error:
        found.problems.append(problem_of(error))
        return found
    else:
        if is_light and rest:
            near = check_light.near(rest[0])
            message = f"{rest[0]} cannot be checked with --light; {near}leave out --light"
            remedy = f"{near}leave out --light"
            found.problems.append(Problem(rest[0], plain_line(message), remedy))
        if namespace.model is None and not rest:
            found.problems.append(problem_of(ConfigError("MODEL", None, MISSING_MODEL)))
        _look_at(found, namespace)
    if not found.problems:
        _find_platform(found)
    if not found.problems and not is_light:
        _ask_vllm(found, arguments)
    return found


def _find_platform(found: CheckResult) -> None:
    choice = select.select_platform()
    found.platform = choice.platform or choice.note or "vLLM's own"
    is_wrong = choice.is_refusal or (choice.note_level >= logging.ERROR and found.spec is not None)
    if is_wrong and not found.is_elsewhere:
        remedy = remedy_of(choice.note, None)
        found.problems.append(Problem(None, plain_line(choice.note), remedy))
    elif choice.note:
        found.notes.append(choice.note)


def _look_at(found: CheckResult, namespace: argparse.Namespace) -> None:
    """Run our own checks."""
    try:
        translated = taken(vars(namespace))
    except AscendSpecError as error:
        found.problems.append(problem_of(error))
        return
    found.model = namespace.model
    # A copy, as vLLM 0.23 adds keys of its own to the dict that it is given.
    found.spec = copy(preflight.merged_speculative_config(namespace))
    examined = preflight.examine_args(namespace)
    wrong = Problems(examined.problems)
    unseen = wrong.run(parser_hook.check_page, namespace) or ()
    wrong.run(check_target, namespace.model or "")
    found.problems += [problem_of(error) for error in wrong]
    found.speculation = None if wrong else examined.speculation
    if wrong:
        return
    found.asked = preflight.engine_of(namespace)
    if (collecting := collecting_of(namespace.additional_config)) is not None:
        found.notes = [*dict.fromkeys([*found.notes, collecting.describe()])]
    found.without_effect = [*without_effect(examined.request)] if examined.request else []
    if translated is not None:
        found.notes = [*dict.fromkeys([*found.notes, told(*translated)])]
        why = "vLLM has had no such option since 0.9"
        found.without_effect += [NoEffect(name, why) for name in translated[1].without_effect]
    found.warnings = [*(found.speculation.warnings if found.speculation else ()), *unseen]
    if found.speculation is None:
        found.warnings += doubts_about({"model": found.model})


def _ask_vllm(found: CheckResult, arguments: Sequence[str]) -> None:
    """Let vLLM read the flags and build its configuration."""
    try:
        found.vllm = " ".join(versions.require_vllm())
    except versions.UnsupportedVersionError as error:
        found.unchecked = str(error)
        return
    with serve_flags.quiet():
        try:
            with on_device(found.here.name if found.here is not None else None):
                vllm_device = serve_flags.load()
        except AscendSpecError as error:  # e.g. a missing library of the device
            found.problems.append(problem_of(error))
            return
        except (Exception, SystemExit) as error:  # anything may be broken
            found.unchecked = f"vLLM cannot be imported: {serve_flags.said(error)}"
            return
        if not vllm_device:
            found.unchecked = NO_DEVICE
            return
        try:
            namespace, given = serve_flags.read(arguments)
        except AscendSpecError as error:
            found.problems.append(problem_of(error))
            return
        _look_at(found, namespace)
        if not found.problems:
            _build(found, namespace, given, vllm_device)


def _build(
    found: CheckResult, namespace: argparse.Namespace, given: dict[str, Any], vllm_device: str
) -> None:
    found.model = read_head(found.model, found.spec).model
    try:
        found.engine = serve_flags.config_of(namespace)
    except (Exception, SystemExit) as error:  # vLLM may raise anything
        said = serve_flags.said(error)
        if found.is_elsewhere:
            found.notes.append(f"vLLM's own checks were not made: here, on {vllm_device}: {said}")
        elif isinstance(error, AscendSpecError):
            found.problems.append(problem_of(error))
        else:
            found.problems.append(Problem(None, said, remedy_of(said, None)))
        return
    if found.is_elsewhere:
        found.notes.append(
            f"vLLM's own defaults and checks are for this machine's device, {vllm_device}"
        )
        found.speculation = _settled(found)
    else:
        found.without_effect += changed(given, found.engine)
        built = getattr(found.engine.speculative_config, ATTRIBUTE, None)
        if built is not None:
            # By now vLLM has read the draft's config and resolved its defaults.
            found.speculation = built
            found.warnings = [*dict.fromkeys([*found.warnings, *built.warnings])]
    _look_at_port(found, namespace)


def _settled(found: CheckResult) -> SpecConfig | None:
    """Return the speculation as the platform of the other device would resolve it."""
    speculation, engine, device = found.speculation, found.engine, found.device
    if speculation is None or engine is None or device is None or speculation.draft_length != AUTO:
        return speculation
    is_full = (
        not found.asked.enforce_eager and (found.asked.cudagraph_mode or DEFAULT_MODE) in FULL_MODES
    )
    reason = blocker_of_auto(engine, speculation, device, is_full=is_full)
    return speculation if reason is None else speculation.with_fixed_length(because(reason))


def _look_at_port(found: CheckResult, namespace: argparse.Namespace) -> None:
    """Warn if the port is taken."""
    port = getattr(namespace, "port", None)
    if isinstance(port, int) and not getattr(namespace, "uds", None):
        try:
            check_port(getattr(namespace, "host", None), port)
        except ConfigError as error:
            # No error: the server to be replaced may still be running on it.
            found.warnings.append(str(error))


def changed(given: dict[str, Any], engine: VllmConfig) -> list[NoEffect]:
    """Return the flags whose values vLLM's configuration has changed.

    Args:
        given: values that differ from vLLM's defaults, by name.
        engine: the configuration built from them.
    """
    found = []
    for name, value in given.items():
        holders = [part for part in vars(engine).values() if name in getattr(part, "__dict__", {})]
        if len(holders) != 1 or type(value) not in (bool, int, str):
            continue
        became = getattr(holders[0], name)
        is_filled_in = value in ("auto", -1)
        if type(became) is type(value) and became != value and not is_filled_in:
            flag = f"--{name.replace('_', '-')}"
            why = f"vLLM has made {became!r} of {value!r} for this engine"
            found.append(NoEffect(flag, why, f"{LEAVE_OUT}, or give {became!r}"))
    return found


def problem_of(error: AscendSpecError) -> Problem:
    """Convert one of our errors to a problem."""
    message = str(error)
    if isinstance(error, ConfigError):
        return Problem(error.option, message, remedy_of(error.problem, error.option))
    if named := OF_ARGPARSE.fullmatch(message):
        flag = named[1].split("/")[0]
        return Problem(flag, message, remedy_of(named[2], flag))
    return Problem(None, message, remedy_of(message, None))


def remedy_of(text: str, option: str | None) -> str:
    """Return the part of a message that says what to do, or a general remedy."""
    if said := REMEDY.search(text):
        return said[1]
    return (
        serve_flags.ASK_VLLM if option is None or option.startswith("-") else f"leave out {option}"
    )
