"""Name and group the configurations that ``bench sweep`` compares: methods times K."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_ascend_spec.bench import privacy
from vllm_ascend_spec.errors import ConfigError

OPTION, LENGTHS, LENGTH = (
    "--speculative-config",
    "--num-speculative-tokens",
    "num_speculative_tokens",
)


@dataclass(frozen=True)
class Configuration:
    """One engine of a sweep.

    Attributes:
        name: name in records and tables.
        method: the name without K; configurations of one method share a colour.
        drafts: K; None if a schedule sets it.
        spec: ``speculative_config``.
    """

    name: str
    method: str
    drafts: int | None
    spec: Mapping[str, Any]


def cross(specs: Sequence[Mapping[str, Any]], lengths: Sequence[int] | None) -> list[Configuration]:
    """Combine each speculative config with each K.

    Args:
        specs: configs as given; without K if ``lengths`` is given.
        lengths: the values of K; None if the configs set it.

    Raises:
        ConfigError: K is given twice, or two configurations are equal.
    """
    crossed: list[dict[str, Any]] = []
    for spec in specs:
        if lengths is None:
            crossed.append(dict(spec))
            continue
        if LENGTH in spec:
            raise ConfigError(
                OPTION,
                privacy.options(spec),
                f"has {LENGTH}, and {LENGTHS} is given, too; give one of the two",
            )
        crossed += [{**spec, LENGTH: drafts} for drafts in lengths]
    for place, spec in enumerate(crossed):
        if spec in crossed[:place]:
            raise ConfigError(OPTION, privacy.options(spec), "is there twice; valid: once each")
    return _named(crossed)


def _named(specs: Sequence[Mapping[str, Any]]) -> list[Configuration]:
    methods = [_method(spec, specs) for spec in specs]
    names = [
        method if spec.get(LENGTH) is None else f"{method} K={spec[LENGTH]}"
        for method, spec in zip(methods, specs, strict=True)
    ]
    # Two configurations may differ only in values that a record must not show: number them.
    seen: Counter[str] = Counter()
    found = []
    for name, method, spec in zip(names, methods, specs, strict=True):
        seen[name] += 1
        number = f" #{seen[name]}" if seen[name] > 1 else ""
        found.append(Configuration(name + number, method + number, spec.get(LENGTH), spec))
    return found


def _method(spec: Mapping[str, Any], specs: Sequence[Mapping[str, Any]]) -> str:
    """Return the method, with the options in which configs of this method differ."""
    name = str(spec.get("method"))
    peers = [other for other in specs if other.get("method") == spec.get("method")]
    keys = sorted({key for other in peers for key in other} - {LENGTH, "method"})
    differing = [key for key in keys if any(other.get(key) != spec.get(key) for other in peers)]
    shown = privacy.options({key: spec[key] for key in differing if key in spec})
    options = ", ".join(f"{key}={_short(value)}" for key, value in shown.items())
    return f"{name} ({options})" if options else name


def _short(value: Any) -> str:
    return value.rpartition("/")[2] if isinstance(value, str) else str(value).lower()


def grouped(configurations: Sequence[Configuration], most: int) -> list[list[Configuration]]:
    """Return groups of at most ``most`` configurations, of about equal size."""
    groups = math.ceil(len(configurations) / most)
    size = math.ceil(len(configurations) / groups)
    return [
        list(configurations[first : first + size]) for first in range(0, len(configurations), size)
    ]
