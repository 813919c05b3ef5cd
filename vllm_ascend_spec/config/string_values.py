"""Values given as strings, as guides do: ``"False"`` is false, ``"5"`` is 5, with a warning."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.config.options import OPTIONS

FLAGS = {"true": True, "false": False}
NUMBER = re.compile(r"\d+(\.\d+)?", re.ASCII)
# No option has a number of more digits, and Python refuses to parse very long ones.
LONGEST = 20


def with_texts_read(spec: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a speculative config with such strings converted, and a warning for each.

    Args:
        spec: the speculative config, with vLLM's names of its keys.
    """
    found, warnings = dict(spec), []
    for key, value in spec.items():
        meant = _meant(value)
        if meant is None or not _takes(key, meant, value):
            continue
        found[key] = meant
        text = json.dumps(meant)
        warnings.append(
            f"speculative_config.{key}={value!r} is text; it is read as {text}; "
            f'write "{key}": {text}, without quotes.'
        )
    return found, tuple(warnings)


def _meant(value: Any) -> bool | int | float | None:
    if not isinstance(value, str) or len(value) > LONGEST:
        return None
    if NUMBER.fullmatch(value):
        return float(value) if "." in value else int(value)
    return FLAGS.get(value.lower())


def _takes(key: str, meant: float, text: str) -> bool:
    """Tell whether an option accepts the converted value but not the string."""
    if key not in OPTIONS:
        return False
    check = OPTIONS[key].check
    return check(meant) is None and check(text) is not None
