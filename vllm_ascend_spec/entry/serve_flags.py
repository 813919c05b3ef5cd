"""Read the flags of ``vllm serve`` as vLLM does, for ``check``: nothing is started.

vLLM's own parser knows its flags, its ``--config`` file and its ways to write JSON. Importing it
takes seconds, so everything that can be told without it has been told before.
"""

from __future__ import annotations

import argparse
import copy
import functools
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, NoReturn

from vllm_ascend_spec.entry import legacy_flags, parser_hook
from vllm_ascend_spec.errors import FlagsError, did_you_mean
from vllm_ascend_spec.one_line import plain_line

if TYPE_CHECKING:
    from vllm.config import VllmConfig

LEVEL = "VLLM_LOGGING_LEVEL"
# What argparse says, and the first flag that it does not know.
UNKNOWN = re.compile(r"unrecognized arguments: (--?[^\s=]+)")
ASK_VLLM = "see `vllm serve --help=all`"


@contextmanager
def quiet() -> Iterator[None]:
    """Let vLLM log errors only, and to stderr: what is printed is the report's."""
    before = os.environ.get(LEVEL)
    if "vllm" not in sys.modules:
        os.environ[LEVEL] = "ERROR"
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.environ.pop(LEVEL, None)
        if before is not None:
            os.environ[LEVEL] = before


def load() -> str:
    """Import vLLM with its plugins, and return the kind of device that it is on.

    Raises:
        Exception: whatever keeps it from being imported.
    """
    from vllm.platforms import current_platform
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    return str(current_platform.device_type)


@functools.cache
def parser() -> Any:
    """Return vLLM's parser with the command ``serve``, the old flags, and without our checks."""
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from vllm_ascend_spec.upstream.server import make_arg_parser

    class Parser(FlexibleArgumentParser):
        """Raises where vLLM's prints its usage and ends the process."""

        def error(self, message: str) -> NoReturn:
            raise FlagsError(plain_line(message))

    whole = Parser(prog="vllm", add_help=False)
    serve = make_arg_parser(whole.add_subparsers(dest="subparser").add_parser("serve"))
    # They stop at the first problem, and `check` collects them.
    parser_hook.release(serve)
    legacy_flags.add_to(serve)
    return whole


def read(arguments: Sequence[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Return what vLLM reads in the words behind ``vllm serve``; old flags are among it.

    Returns:
        All of it, and what of it differs from vLLM's defaults, by name.

    Raises:
        FlagsError: vLLM does not take them.
    """
    from vllm_ascend_spec.upstream.server import validate_parsed_serve_args

    whole = parser()
    (serve,) = whole._subparsers._group_actions[0].choices.values()
    try:
        namespace = whole.parse_args(["serve", *arguments])
        validate_parsed_serve_args(namespace)
    except FlagsError as error:
        raise FlagsError(plain_line(with_nearest(str(error), serve))) from None
    except (Exception, SystemExit) as error:  # a wrong --config is anything, or the end
        raise FlagsError(said(error)) from None
    if namespace.model_tag is not None:
        namespace.model = namespace.model_tag
    values = vars(namespace)
    defaults = {action.dest: action.default for action in serve._actions if action.dest in values}
    given = {name: values[name] for name in defaults if values[name] != defaults[name]}
    # The defaults are the parser's own objects, and vLLM fills in what it is given.
    return copy.deepcopy(namespace), given


def with_nearest(message: str, parser: Any) -> str:
    """Return what a parser says of flags that it does not know, with the nearest that it knows."""
    unknown = UNKNOWN.match(message)
    near = did_you_mean(unknown[1], parser._option_string_actions) if unknown else ""
    return message[: unknown.end(1)] + f"; {near}{ASK_VLLM}" if unknown and near else message


def config_of(namespace: argparse.Namespace) -> VllmConfig:
    """Return the configuration that an engine of these flags has.

    Raises:
        Exception: whatever vLLM has against it.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext

    args = AsyncEngineArgs.from_cli_args(namespace)
    return args.create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)


def said(error: BaseException) -> str:
    """Return what somebody else's error says, in one line."""
    if callable(errors := getattr(error, "errors", None)):  # pydantic's are pages
        parts = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}".lstrip(": ") for e in errors()]
        return plain_line("; ".join(parts))
    lines = [line for line in str(error).splitlines() if line.strip()]
    return plain_line(lines[0] if lines else type(error).__name__)
