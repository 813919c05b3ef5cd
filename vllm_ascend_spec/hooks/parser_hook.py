"""Give clear errors for ``vllm serve``.

Why: vLLM reports a wrong option minutes later, below a traceback.
How: the parser that vLLM hands to the platform checks what it parsed, and reports what is wrong as
argparse reports any other wrong argument: one line, exit status 2.
Until: never; this is our own feature. The parser is vLLM's own hook for platforms
(``Platform.pre_register_and_update``).
"""

from __future__ import annotations

import argparse
import logging
import sys
from typing import Any

from vllm_ascend_spec.config.json_option import check_texts
from vllm_ascend_spec.config.page import refuse_page, unseen
from vllm_ascend_spec.config.port import check_port
from vllm_ascend_spec.errors import AscendSpecError
from vllm_ascend_spec.hooks import legacy_flags, preflight
from vllm_ascend_spec.log import log_once


def apply(parser: Any) -> None:
    """Make ``parser`` accept old flags and check what it has parsed."""
    legacy_flags.add_to(parser)
    stock = parser.parse_known_args

    def parse_known_args(*args: Any, **kwargs: Any) -> tuple[argparse.Namespace, list[str]]:
        given = args[0] if args else kwargs.get("args")
        words = sys.argv[1:] if given is None else given
        try:
            # vLLM's own message quotes the whole text, or is a traceback.
            check_texts(words)
            namespace, extras = stock(*args, **kwargs)
            legacy_flags.translate(namespace)
            if words:  # vLLM parses an empty list to get the defaults
                check(namespace)
        except AscendSpecError as error:
            parser.error(str(error))
        return namespace, extras

    parser.parse_known_args = parse_known_args


def release(parser: Any) -> None:
    """Undo :func:`apply` for one parser; the old flags stay."""
    vars(parser).pop("parse_known_args", None)


def check(namespace: argparse.Namespace) -> None:
    """Check the options of an engine and of the server."""
    preflight.resolve_args(namespace)
    for warning in check_page(namespace):
        log_once(logging.WARNING, warning)
    port = getattr(namespace, "port", None)
    if isinstance(port, int) and not getattr(namespace, "uds", None):
        check_port(getattr(namespace, "host", None), port)


def check_page(namespace: argparse.Namespace) -> tuple[str, ...]:
    """Check whether a requested page could be seen; return warnings.

    Raises:
        ConfigError: nobody could see the page.
    """
    if getattr(namespace, "grpc", False):
        refuse_page(namespace.additional_config)
    headless = bool(getattr(namespace, "headless", False))
    return unseen(headless=headless, additional_config=namespace.additional_config)
