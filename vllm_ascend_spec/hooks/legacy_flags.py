"""Accept the flags that ``vllm serve`` had before ``--speculative-config``; log the new form."""

from __future__ import annotations

import argparse
import logging
from typing import Any

from vllm_ascend_spec.legacy.names import LEGACY, taken, told
from vllm_ascend_spec.log import log_once


def add_to(parser: Any) -> None:
    """Add the old flags to a parser; its help does not show them.

    Args:
        parser: the parser of ``vllm serve`` or of vLLM's ``api_server``.
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
    """Replace the old flags by a ``speculative_config``, and log it.

    Raises:
        ConfigError: the old flags contradict each other or the new ones, or are incomplete.
    """
    if (done := taken(vars(namespace))) is not None:
        log_once(logging.WARNING, told(*done))
