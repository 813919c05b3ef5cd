"""Flags that are given as text, as guides have them: ``"False"`` is false, with a warning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.config.options import OPTIONS

TEXTS = {"true": True, "false": False}


def with_flags(spec: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a speculative config with such texts as flags, and a warning for each.

    Args:
        spec: with vLLM's names of its keys.
    """
    found, warnings = dict(spec), []
    for key, value in spec.items():
        meant = TEXTS.get(value.lower()) if isinstance(value, str) else None
        if meant is None or not _is_flag(key):
            continue
        found[key] = meant
        text = str(meant).lower()
        warnings.append(
            f"speculative_config.{key}={value!r} is a text and taken as {text}; "
            f'write "{key}": {text}, without quotes.'
        )
    return found, tuple(warnings)


def _is_flag(key: str) -> bool:
    """Tell whether an option takes true and false, and refuses text."""
    if key not in OPTIONS:
        return False
    check = OPTIONS[key].check
    return check(True) is None and check(False) is None and check("false") is not None
