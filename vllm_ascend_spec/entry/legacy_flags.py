"""Take the flags that ``vllm serve`` had before ``--speculative-config``, and say the new form."""

from __future__ import annotations

import argparse
import logging
from typing import Any

from vllm_ascend_spec.legacy.names import LEGACY, Modern, given_of, modern, told
from vllm_ascend_spec.log import log_once


def add_to(parser: Any) -> None:
    """Let a parser take the old flags; its help does not show them.

    Args:
        parser: of ``vllm serve`` or of vLLM's ``api_server``.
    """
    for option in LEGACY.values():
        if option.flag in parser._option_string_actions:  # this vLLM has it itself
            continue
        how: dict[str, Any] = {"type": option.parse}
        if option.parse is None:
            how = {"action": "store_true", "default": None}
        elif option.alone is not None:
            how |= {"nargs": "?", "const": option.alone}
        parser.add_argument(*option.flags, dest=option.name, help=argparse.SUPPRESS, **how)


def translate(namespace: argparse.Namespace) -> None:
    """Put what the old flags mean into ``speculative_config``, take them away, and say it.

    Raises:
        ConfigError: they contradict each other or the new ones, or say too little.
    """
    if (done := translated(namespace)) is not None:
        log_once(logging.WARNING, told(*done))


def translated(namespace: argparse.Namespace) -> tuple[dict[str, Any], Modern] | None:
    """Do the same in silence.

    Returns:
        The values by old name, and what they came to; None where none was given.

    Raises:
        ConfigError: as :func:`translate` does.
    """
    values = vars(namespace)
    given = given_of(values)
    for name in LEGACY:
        values.pop(name, None)
    if not given:
        return None
    short = [name for name in ("spec_method", "spec_model", "spec_tokens") if values.get(name)]
    beside = {name: values[name] for name in short} or None
    target = values.get("model_tag") or values.get("model")
    found = modern(given, values.get("speculative_config") or beside, target)
    if found.spec is not beside:
        values["speculative_config"] = found.spec
    return given, found
