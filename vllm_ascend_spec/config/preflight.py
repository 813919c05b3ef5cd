"""Check a command line or an ``LLM()`` call before anything expensive starts.

``check``, ``vllm serve`` and ``LLM()`` all call :func:`resolve_engine` through ``hooks/``, so
``check`` reports exactly what the other two do.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from types import MappingProxyType
from typing import Any

from vllm_ascend_spec.config.additional import check_additional
from vllm_ascend_spec.config.combinations import COMBINATIONS
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
from vllm_ascend_spec.errors import ConfigError, did_you_mean
from vllm_ascend_spec.upstream.limits import WITHOUT_OPTIONS

SPEC = "speculative_config"
NOTHING: Mapping[str, Any] = MappingProxyType({})
# The types of JSON values; a value of any other type was set by a program.
JSON_TYPES = (type(None), bool, int, float, str, list, dict)
# Methods of vLLM that this package does not support, and why.
REFUSED = {
    "dspark": ": vLLM has it in model runner V2 alone, and this package drafts by V1's; another "
    "one that drafts in one pass is 'dflash'"
}
OURS = frozenset(CHECKS)
# At most this many names are shown, so that a message stays on one line.
MOST_NAMES = 4


def resolve_engine(
    model: str | None,
    speculative_config: Any,
    additional_config: Any = NOTHING,
    engine: EngineOptions | None = None,
    *,
    methods: Mapping[str, Method],
) -> SpecConfig | None:
    """Check everything that needs no loaded model, and return the resolved speculation.

    Args:
        model: the target (a folder or a name on a hub), or a head's folder that names its target.
        speculative_config: as given by the user; None for no speculation.
        additional_config: as given by the user.
        engine: the engine options that affect speculation.
        methods: all known methods, by name.

    Returns:
        The resolved speculation, or None for an engine without speculation.

    Raises:
        ConfigError: naming the option, its value and what is valid.
    """
    request = request_of(model, speculative_config, additional_config, engine, methods=methods)
    if request is None:
        return None
    for check in COMBINATIONS:
        check(request)
    return resolve(request)


def request_of(
    model: str | None,
    speculative_config: Any,
    additional_config: Any = NOTHING,
    engine: EngineOptions | None = None,
    *,
    methods: Mapping[str, Method],
) -> SpecInput | None:
    """Check each option on its own, and return what was asked for.

    Args:
        model: as for :func:`resolve_engine`.
        speculative_config: as given by the user; None for no speculation.
        additional_config: as given by the user.
        engine: the engine options that affect speculation.
        methods: all known methods, by name.

    Returns:
        The request, or None for an engine without speculation.

    Raises:
        ConfigError: naming the option, its value and what is valid.
    """
    section = check_additional(additional_config)
    options = SpecOptions.from_mapping(section)
    asked = asked_for(model, speculative_config)
    if asked.spec is None:
        require_speculation(section)
        return None
    if asked.model is not None:
        check_name("model", asked.model)
    spec, warnings = with_texts_read(with_underscores(asked.spec))
    check_names(spec, SPEC)
    method = check_method(spec, methods)
    if method.for_spec is not None:
        method = method.for_spec(spec, methods)
    check_options(method, spec, methods)
    engine = engine or EngineOptions()
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


def check_options(method: Method, spec: Mapping[str, Any], methods: Mapping[str, Method]) -> None:
    """Check that each option belongs to the method and is valid, and that none is missing."""
    for key, value in spec.items():
        if key in INTERNAL and not isinstance(value, JSON_TYPES):
            continue
        if key in WITHOUT_OPTIONS or key not in method.options:
            if key not in WITHOUT_OPTIONS and is_unset(key, value):
                continue
            raise ConfigError(f"{SPEC}.{key}", value, _why_not(key, method, methods))
        if value is None and key in method.required:
            continue
        # A method of another package may have options of its own, which its own rules check.
        if key in OPTIONS and (problem := OPTIONS[key].check(value)):
            raise ConfigError(f"{SPEC}.{key}", value, problem)
    for key in method.required:
        if spec.get(key) is None:
            valid = f"; {OPTIONS[key].check(None)}" if key in OPTIONS else ""
            raise ConfigError(f"{SPEC}.{key}", None, f"method {method.name!r} needs it{valid}")


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
    return f"{shown} and {more} more, see docs/configuration.md" if more > 0 else shown


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
