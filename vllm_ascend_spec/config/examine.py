"""Examine a speculative config: read it, check it by rules, and resolve it to one record.

``check``, ``vllm serve`` and ``LLM()`` all call :func:`examine` through ``hooks/preflight.py``. The
first reports all problems, the others raise the first of them.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from difflib import SequenceMatcher
from types import MappingProxyType
from typing import Any, TypeVar

from vllm_ascend_spec.config.additional import check_additional
from vllm_ascend_spec.config.combinations import rules_of
from vllm_ascend_spec.config.detect import asked_for
from vllm_ascend_spec.config.draft_length import with_lengths
from vllm_ascend_spec.config.draft_options import check_name
from vllm_ascend_spec.config.draft_tp import with_split
from vllm_ascend_spec.config.engine import EngineOptions, SpecInput
from vllm_ascend_spec.config.method import Method
from vllm_ascend_spec.config.old_names import check_names
from vllm_ascend_spec.config.options import ABSENT, INTERNAL, NOT_POSSIBLE, OPTIONS, is_unset
from vllm_ascend_spec.config.resolve import require_speculation, resolve
from vllm_ascend_spec.config.resolved import SpecConfig
from vllm_ascend_spec.config.schedule import with_schedule
from vllm_ascend_spec.config.schema import CHECKS, SECTION, SpecOptions
from vllm_ascend_spec.config.string_values import with_texts_read
from vllm_ascend_spec.errors import AscendSpecError, ConfigError, did_you_mean
from vllm_ascend_spec.upstream.limits import WITHOUT_OPTIONS

T = TypeVar("T")
SPEC, SECTION_OPTION = "speculative_config", f"additional_config.{SECTION}"
NOTHING: Mapping[str, Any] = MappingProxyType({})
# The types of JSON values; a value of any other type was set by a program.
JSON_TYPES = (type(None), bool, int, float, str, list, dict)
# Methods of vLLM that this package does not support, and why.
REFUSED = {
    "dspark": ": vLLM has it only in model runner V2, and this package uses V1; 'dflash' also "
    "drafts in one pass"
}
OURS = frozenset(CHECKS)
# At most this many names are shown, so that a message stays on one line.
MOST_NAMES = 4


class Problems(list[AscendSpecError]):
    """Everything that is wrong, in the order in which it is found; one problem for each option."""

    def run(self, check: Callable[..., T], *args: Any) -> T | None:
        """Run a check that raises what is wrong; return its result, or None if it raised."""
        try:
            return check(*args)
        except AscendSpecError as error:
            self.add(error)
            return None

    def add(self, problem: AscendSpecError) -> None:
        """Add a problem, unless its option has one."""
        if option_of(problem) not in map(option_of, self):
            self.append(problem)

    def has(self, option: str) -> bool:
        """Tell whether an option has a problem."""
        return option in map(option_of, self)


def option_of(problem: AscendSpecError) -> str:
    """Return the option that a problem is about, or its text if it is about none."""
    return getattr(problem, "option", str(problem))


@dataclass(frozen=True, kw_only=True)
class Examined:
    """What became of a speculative config.

    Attributes:
        problems: everything that is wrong; an engine raises the first.
        request: what was asked for; None without speculation, or if that cannot be read.
        speculation: the resolved record; None without speculation, or with problems.
    """

    problems: tuple[AscendSpecError, ...] = ()
    request: SpecInput | None = None
    speculation: SpecConfig | None = None

    def with_problems(self, problems: Iterable[AscendSpecError]) -> Examined:
        """Return a copy with these problems, which include its own."""
        found = tuple(problems)
        return replace(self, problems=found, speculation=None if found else self.speculation)

    def resolved(self) -> SpecConfig | None:
        """Return the speculation; None without one.

        Raises:
            AscendSpecError: the first problem.
        """
        if self.problems:
            raise self.problems[0]
        return self.speculation


def examine(
    model: str | None,
    speculative_config: Any,
    additional_config: Any = NOTHING,
    engine: EngineOptions | None = None,
    *,
    methods: Mapping[str, Method],
) -> Examined:
    """Check everything that needs no loaded model, and resolve the speculation.

    Args:
        model: the target (a folder or a name on a hub), or a head's folder that names its target.
        speculative_config: as given by the user; None for no speculation.
        additional_config: as given by the user.
        engine: the engine options that affect speculation.
        methods: all known methods, by name.
    """
    problems = Problems()
    request = _read(
        problems, model, speculative_config, additional_config, engine or EngineOptions(), methods
    )
    if request is None:
        return Examined(problems=tuple(problems))
    right: SpecInput | None = request
    for rule in rules_of(request):
        if right is None:
            break
        before = len(problems)
        problems.run(rule, right)
        # A rule may rely on what those before it found right.
        for problem in problems[before:]:
            right = right and without(right, option_of(problem))
    speculation = None if problems else resolve(request)
    return Examined(problems=tuple(problems), request=request, speculation=speculation)


def without(request: SpecInput, option: str) -> SpecInput | None:
    """Return the request without an option; None if the rest cannot be checked without it."""
    where, _, key = option.rpartition(".")
    if where == SPEC and key in request.spec and key not in request.method.required:
        return replace(request, spec={k: v for k, v in request.spec.items() if k != key})
    if where == SECTION_OPTION and key in request.section:
        section = {k: v for k, v in request.section.items() if k != key}
        return replace(request, section=section, options=SpecOptions.from_mapping(section))
    defaults: dict[str, Any] = {field.name: field.default for field in fields(EngineOptions)}
    name = option.removeprefix("--").replace("-", "_").removeprefix("compilation_config.")
    if name not in defaults:
        return None
    engine = replace(request.engine, **{name: defaults[name]})
    return None if engine == request.engine else replace(request, engine=engine)


def _read(
    problems: Problems,
    model: str | None,
    speculative_config: Any,
    additional_config: Any,
    engine: EngineOptions,
    methods: Mapping[str, Method],
) -> SpecInput | None:
    """Check each option on its own, and return those that are right; None without speculation.

    What is wrong is left out, so that the rules about several options look at the others. Without
    a method or an option that it needs, None is returned, too.
    """
    section = problems.run(check_additional, additional_config) or NOTHING
    options = SpecOptions.from_valid(section, problems.add)
    if problems:
        wrong = {option_of(problem) for problem in problems}
        given = section.items() if isinstance(section, Mapping) else ()
        section = {k: v for k, v in given if f"{SECTION_OPTION}.{k}" not in wrong}
    asked = problems.run(asked_for, model, speculative_config)
    if asked is None:
        return None
    if asked.spec is None:
        problems.run(require_speculation, section)
        return None
    if asked.model is not None:
        problems.run(check_name, "model", asked.model)
        if problems.has("model"):
            return None
    read = _read_options(problems, asked.spec, methods)
    if read is None:
        return None
    spec, method, warnings = read

    def build() -> SpecInput:
        split, about_split = with_split(spec, method, engine)
        return SpecInput(
            spec=with_lengths(with_schedule(split), options),
            method=method,
            section=section,
            options=options,
            additional=additional_config if isinstance(additional_config, Mapping) else NOTHING,
            model=asked.model,
            engine=engine,
            from_head=asked.from_head,
            detected=asked.detected,
            warnings=warnings + about_split,
        )

    return problems.run(build)


def _read_options(
    problems: Problems, given: Any, methods: Mapping[str, Method]
) -> tuple[dict[str, Any], Method, tuple[str, ...]] | None:
    """Return the right options, their method and warnings; None without those that it needs."""

    def name_method() -> tuple[dict[str, Any], Method, tuple[str, ...]]:
        spec, warnings = with_texts_read(with_underscores(given))
        check_names(spec, SPEC)
        method = check_method(spec, methods)
        return spec, method.for_spec(spec, methods) if method.for_spec else method, warnings

    read = problems.run(name_method)
    if read is None:
        return None
    spec, method, warnings = read
    valid = check_options(method, spec, methods, problems)
    lacks = any(problems.has(f"{SPEC}.{key}") for key in method.required)
    return None if lacks else (valid, method, warnings)


def with_underscores(spec: Any) -> dict[str, Any]:
    """Return ``spec`` with underscores for dashes in its keys, as vLLM names them.

    Raises:
        ConfigError: it is not a JSON object, or has a key in both spellings.
    """
    if not isinstance(spec, Mapping):
        raise ConfigError(SPEC, spec, "must be a JSON object, or left out for no speculation")
    named: dict[str, Any] = {}
    for key, value in spec.items():
        name = str(key).replace("-", "_")
        if name in named:
            raise ConfigError(f"{SPEC}.{name}", value, "is given twice, with - and with _")
        named[name] = value
    return named


def check_method(spec: Mapping[str, Any], methods: Mapping[str, Method]) -> Method:
    """Return the method that ``spec`` names, by its name or an alias."""
    name = spec.get("method")
    valid = ", ".join(repr(known) for known in methods)
    if name is None:
        raise ConfigError(f"{SPEC}.method", None, f"name the method; valid: {valid}")
    found = None
    if isinstance(name, str):
        known_as = (method for method in methods.values() if name in method.aliases)
        found = methods.get(name) or next(known_as, None)
    if found is None:
        reason = REFUSED.get(name, "") if isinstance(name, str) else ""
        near = "" if reason else did_you_mean(name, methods)
        problem = f"not supported by this release{reason}; {near}valid: {valid}"
        raise ConfigError(f"{SPEC}.method", name, problem)
    return found


def check_options(
    method: Method, spec: Mapping[str, Any], methods: Mapping[str, Method], problems: Problems
) -> dict[str, Any]:
    """Return the options that are right; add the others, and missing ones, to ``problems``."""
    valid = {}
    for key, value in spec.items():
        if problem := _problem_of(key, value, method, methods):
            problems.add(ConfigError(f"{SPEC}.{key}", value, problem))
        else:
            valid[key] = value
    for key in method.required:
        if spec.get(key) is None:
            example = f"; {OPTIONS[key].check(None)}" if key in OPTIONS else ""
            problem = f"method {method.name!r} needs it{example}"
            problems.add(ConfigError(f"{SPEC}.{key}", None, problem))
    return valid


def _problem_of(key: str, value: Any, method: Method, methods: Mapping[str, Method]) -> str | None:
    """Return what is wrong with an option by itself; None if nothing is."""
    if key in INTERNAL and not isinstance(value, JSON_TYPES):
        return None
    if key in WITHOUT_OPTIONS:
        return _why_not(key, method, methods)
    if key not in method.options:
        return None if is_unset(key, value) else _why_not(key, method, methods)
    if value is None and key in method.required:
        return None
    # A method of another package may have options of its own, which its own rules check.
    return OPTIONS[key].check(value) if key in OPTIONS else None


def _why_not(key: str, method: Method, methods: Mapping[str, Method]) -> str:
    """Return why a key cannot be used with a method, and which keys can."""
    if key in ABSENT:
        return ABSENT[key][1]
    if key in WITHOUT_OPTIONS:
        return f"not possible with {WITHOUT_OPTIONS[key]}"
    if key in OURS or key == SECTION:
        return f"is an option of --additional-config '{{\"{SECTION}\": {{…}}}}'; write it there"
    owners = [repr(other.name) for other in methods.values() if key in other.options]
    only = f", only with {' and '.join(owners)}" if owners else ""
    what = "is not possible" if key in NOT_POSSIBLE else "has no effect"
    near = "" if owners else did_you_mean(key, method.options)
    valid = nearest(key, method.options)
    return f"{what} with method {method.name!r}{only}; {near}valid: {valid}"


def nearest(key: str, names: Iterable[str]) -> str:
    """Return the names most similar to ``key``, and where to find the others."""
    ordered = sorted(names, key=lambda name: (-SequenceMatcher(None, key, name).ratio(), name))
    more = len(ordered) - MOST_NAMES
    shown = ", ".join(ordered[:MOST_NAMES])
    return f"{shown} and {more} more, see docs/reference.md" if more > 0 else shown


def check_port(host: str | None, port: int) -> None:
    """Raise if another process listens on the port.

    Raises:
        ConfigError: the port is taken.
    """
    family = socket.AF_INET6 if host and ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host or "", port))
        except OSError as error:
            # Anything else (no such interface, no permission) is vLLM's to report.
            if error.errno == errno.EADDRINUSE:
                raise ConfigError(
                    "--port", port, "another process listens on it; choose a free port"
                ) from None
