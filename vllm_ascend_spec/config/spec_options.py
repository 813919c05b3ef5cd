"""Check the options of ``speculative_config``, each on its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from typing import Any

from vllm_ascend_spec.config.method import Method
from vllm_ascend_spec.config.options import ABSENT, INTERNAL, NOT_POSSIBLE, OPTIONS, is_unset
from vllm_ascend_spec.config.problems import Problems
from vllm_ascend_spec.config.schema import CHECKS, SECTION
from vllm_ascend_spec.errors import ConfigError, did_you_mean
from vllm_ascend_spec.upstream.limits import WITHOUT_OPTIONS

SPEC = "speculative_config"
# The types of JSON values; a value of any other type was set by a program.
JSON_TYPES = (type(None), bool, int, float, str, list, dict)
OURS = frozenset(CHECKS)
# At most this many names are shown, so that a message stays on one line.
MOST_NAMES = 4


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
        problem = f"not supported by this release; {did_you_mean(name, methods)}valid: {valid}"
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
