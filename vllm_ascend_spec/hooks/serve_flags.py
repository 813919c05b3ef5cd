"""Read the flags of ``vllm serve`` as vLLM does, for ``check``: nothing is started.

vLLM's own parser knows its flags, its ``--config`` file and its ways to write JSON. Importing it
takes seconds, so whatever can be checked without it has been checked before.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from vllm_ascend_spec.config.yaml_option import read_options
from vllm_ascend_spec.errors import ConfigError, FlagsError, did_you_mean
from vllm_ascend_spec.hooks import legacy_flags, parser_hook
from vllm_ascend_spec.messages import plain_line

if TYPE_CHECKING:
    from vllm.config import VllmConfig

LEVEL = "VLLM_LOGGING_LEVEL"
# Start of argparse's message, with the first flag that it does not know.
UNKNOWN = re.compile(r"unrecognized arguments: (--?[^\s=]+)")
ASK_VLLM = "see `vllm serve --help=all`"


@contextmanager
def quiet() -> Iterator[None]:
    """Let vLLM log errors only, and to stderr: stdout is for the report."""
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
    """Import vLLM with its plugins, and return its device type.

    Raises:
        Exception: whatever the import raises.
    """
    from vllm.platforms import current_platform
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    return str(current_platform.device_type)


@functools.cache
def parser() -> Any:
    """Return vLLM's parser with the command ``serve`` and the old flags, without our checks."""
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from vllm_ascend_spec.upstream.server import make_arg_parser

    class Parser(FlexibleArgumentParser):
        """Raises where vLLM's parser prints its usage and ends the process."""

        def error(self, message: str) -> NoReturn:
            raise FlagsError(plain_line(message))

        def load_config_file(self, file_path: str) -> list[str]:
            read_options(Path(file_path))  # names the option and the file; vLLM does not
            return super().load_config_file(file_path)

    whole = Parser(prog="vllm", add_help=False)
    serve = make_arg_parser(whole.add_subparsers(dest="subparser").add_parser("serve"))
    # Our checks stop at the first problem, but `check` collects all.
    parser_hook.release(serve)
    legacy_flags.add_to(serve)
    return whole


def read(arguments: Sequence[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Parse the words after ``vllm serve``, old flags included, as vLLM does.

    Returns:
        The namespace, and its values that differ from vLLM's defaults, by name.

    Raises:
        FlagsError: vLLM rejects them.
        ConfigError: the file of ``--config`` cannot be read.
    """
    from vllm_ascend_spec.upstream.server import validate_parsed_serve_args

    whole = parser()
    (serve,) = whole._subparsers._group_actions[0].choices.values()
    try:
        namespace = whole.parse_args(["serve", *arguments])
        validate_parsed_serve_args(namespace)
    except FlagsError as error:
        raise FlagsError(plain_line(with_nearest(str(error), serve))) from None
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:  # a wrong --config raises anything, or exits
        raise FlagsError(said(error)) from None
    if namespace.model_tag is not None:
        namespace.model = namespace.model_tag
    values = vars(namespace)
    defaults = {action.dest: action.default for action in serve._actions if action.dest in values}
    given = {name: values[name] for name in defaults if values[name] != defaults[name]}
    # Copied: the defaults are the parser's own objects, and vLLM changes what it is given.
    return copy.deepcopy(namespace), given


def with_nearest(message: str, parser: Any) -> str:
    """Add the nearest known flag to a parser's message about unknown flags."""
    unknown = UNKNOWN.match(message)
    near = did_you_mean(unknown[1], parser._option_string_actions) if unknown else ""
    return message[: unknown.end(1)] + f"; {near}{ASK_VLLM}" if unknown and near else message


def config_of(namespace: argparse.Namespace) -> VllmConfig:
    """Return the configuration of an engine with these flags.

    Raises:
        Exception: whatever vLLM raises if it rejects them.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext

    args = AsyncEngineArgs.from_cli_args(namespace)
    return args.create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)


def said(error: BaseException) -> str:
    """Return the message of an error that is not ours, in one line."""
    if callable(errors := getattr(error, "errors", None)):  # pydantic's take pages
        parts = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}".lstrip(": ") for e in errors()]
        return plain_line("; ".join(parts))
    lines = [line for line in str(error).splitlines() if line.strip()]
    return plain_line(lines[0] if lines else type(error).__name__)
