"""``vllm-ascend-spec COMMAND``; imports of torch and vLLM wait until a command runs."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from vllm_ascend_spec import __version__
from vllm_ascend_spec.bench import privacy
from vllm_ascend_spec.bench.privacy import redact
from vllm_ascend_spec.cli.parsers import CommandParser, add_examples, unknown
from vllm_ascend_spec.errors import AscendSpecError

# Each module has `HELP`, `add_arguments(parser)` and `run(args) -> exit status`.
COMMANDS = ("serve", "env", "check", "plan", "info", "bench", "train", "migrate", "completion")
# These hand arguments that are not their own to vLLM, as `args.arguments`.
PASS_ON = ("serve", "check")
# These take what stands after `--`, as `args.rest`.
TAKE_REST = ("train",)
EXIT_BAD_INPUT = 2


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = CommandParser(
        prog="vllm-ascend-spec", description="Speculative decoding for vLLM, made right and easy."
    )
    parser.add_argument("--version", action="version", version=f"vllm-ascend-spec {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        module = importlib.import_module(f"vllm_ascend_spec.cli.{name}")
        # `serve` hands everything on to vLLM, --help included.
        command = subparsers.add_parser(
            name, help=module.HELP, description=module.HELP, add_help=name != "serve"
        )
        module.add_arguments(command)
        command.passes_on = name in PASS_ON
        command.takes_rest = name in TAKE_REST
        command.set_defaults(run=module.run)
    add_examples(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    parser = build_parser()
    args, rest = parser.parse_known_args(argv)
    if rest:
        parser.error(unknown(parser, args.command, privacy.arguments(rest)))
    try:
        return args.run(args)
    except AscendSpecError as error:
        message = redact(str(error), sys.argv[1:] if argv is None else argv)
        sys.stderr.write(f"vllm-ascend-spec {args.command}: error: {message}\n")
        return EXIT_BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
