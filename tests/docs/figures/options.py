"""The options of ``--speculative-config`` and of our section, from their records."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator

from tests.docs.figures.rows import row
from vllm_ascend_spec.config import known_to_vllm
from vllm_ascend_spec.config.draft_sampling import AUTO
from vllm_ascend_spec.config.old_names import ALIASES, KEYS
from vllm_ascend_spec.config.options import OPTIONS, Option
from vllm_ascend_spec.config.schema import CHECKS, SpecOptions
from vllm_ascend_spec.config.values import Check
from vllm_ascend_spec.methods.registry import BUILT_IN
from vllm_ascend_spec.upstream.limits import FIRST_WITH

NOTHING = "–"
# Not given, it is ours; vLLM's default counts as not given with methods that lack the option.
OUR_DEFAULT = {"draft_sample_method": AUTO}


def of_speculation() -> Iterator[str]:
    """Yield an option of ``--speculative-config``, its values, default and methods."""
    for option in OPTIONS.values():
        default = OUR_DEFAULT.get(option.name, option.unset)
        cells = [valid(option.check), code(default), methods_with(option)]
        first = FIRST_WITH.get(option.name)
        about = f"{option.about} (vLLM {first} and later)" if first else option.about
        yield row(f"`{option.name}`", about, *cells)


def of_section() -> Iterator[str]:
    """Yield an option of our section, its values and default."""
    about = section_texts()
    for option in dataclasses.fields(SpecOptions):
        cells = [valid(CHECKS[option.name]), code(option.default)]
        yield row(f"`{option.name}`", about[option.name], *cells)


def old_names() -> Iterator[str]:
    """Yield an old name and what it is called now."""
    for old, new in {**KEYS, **ALIASES}.items():
        if old != new:
            yield row(f"`{old}`", NOTHING if new is None else f"`{new}`")


def section_texts() -> dict[str, str]:
    """Return what each option of our section is, from the docstring of its class."""
    attributes = (inspect.getdoc(SpecOptions) or "").partition("Attributes:\n")[2]
    found = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", attributes, re.MULTILINE)
    return {name: re.sub(r"\s+", " ", text).replace("``", "`").rstrip(".") for name, text in found}


def valid(check: Check) -> str:
    """Return what a check accepts."""
    inner = inspect.getclosurevars(check).nonlocals.get("check")
    if getattr(inner, "__module__", "") == known_to_vllm.__name__:
        return "vLLM's values"
    said = check(object()) or check(None) or ""
    return said.removeprefix("valid: ").replace("|", "\\|")


def code(value: object) -> str:
    """Return a default as it is written in JSON."""
    if value is None:
        return NOTHING
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def methods_with(option: Option) -> str:
    """Return the methods that have an option."""
    names = [name for name, method in BUILT_IN.items() if option.name in method.options]
    with_draft = [name for name, method in BUILT_IN.items() if method.needs_checkpoint]
    for group, members in (("all", list(BUILT_IN)), ("those with a draft model", with_draft)):
        others = [name for name in members if name not in names]
        if set(names) <= set(members) and len(others) < 3:
            return f"{group} except {', '.join(map(quoted, others))}" if others else group
    return ", ".join(map(quoted, names))


def quoted(name: str) -> str:
    """Return a name as code."""
    return f"`{name}`"
