"""``vllm-ascend-spec migrate``: replace old options in a command, script or YAML file."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.legacy.rewrite import Rewritten, has_old, rewrite
from vllm_ascend_spec.legacy.yaml_file import rewrite_yaml

HELP = "rewrite vLLM's old options in a command, a script or a YAML file"
STDIN = "-"
YAML = (".yaml", ".yml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--write``, and the file or the command after ``--``."""
    parser.add_argument("--write", action="store_true", help="write the result into the file")
    parser.add_argument(
        "old",
        nargs="*",
        default=[STDIN],
        metavar="FILE | -- COMMAND",
        help="a shell script or YAML (*.yaml, *.yml), or - for a script from standard "
        "input, as without any; or a "
        "command: vllm serve, python -m vllm.entrypoints.openai.api_server, docker run …",
    )


def run(args: argparse.Namespace) -> int:
    """Print or write the new text; notes for the user go to stderr."""
    name = args.old[0]
    is_one_text = len(args.old) == 1 and " " in name and has_old(name)
    command = name if is_one_text else shlex.join(args.old) if len(args.old) > 1 else None
    if args.write and (command is not None or name == STDIN):
        raise ConfigError("--write", True, "is for a file; leave it out")
    result = _of_file(name) if command is None else rewrite(command)
    if args.write:
        if result.count:
            Path(name).write_text(result.text)
    else:
        sys.stdout.write(result.text if result.text.endswith("\n") else f"{result.text}\n")
    for note in dict.fromkeys(result.notes):
        sys.stderr.write(f"note: {note}\n")
    if not result.count:
        sys.stderr.write("note: no old options of speculation in it, nothing changed\n")
    return 0


def _of_file(name: str) -> Rewritten:
    if name == STDIN:
        return rewrite(sys.stdin.read())
    try:
        text = Path(name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is no text"
        raise ConfigError("FILE", name, f"{reason}; a command has to stand behind --") from None
    return rewrite_yaml(text, name) if name.endswith(YAML) else rewrite(text)
