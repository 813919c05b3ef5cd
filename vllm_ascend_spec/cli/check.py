"""``vllm-ascend-spec check``: is this configuration right? Loads no model."""

from __future__ import annotations

import argparse
import json
import os
import sys

from vllm_ascend_spec.bench.privacy import redact
from vllm_ascend_spec.cli import check_report
from vllm_ascend_spec.cli.check_command import asked_of, device_variable, variables
from vllm_ascend_spec.cli.check_found import CheckResult, find
from vllm_ascend_spec.cli.patience import waiting
from vllm_ascend_spec.devices import select

HELP = "check the flags of `vllm serve`, or a whole command; loads no weights"
USAGE = """vllm-ascend-spec check [options] MODEL [flags of vllm serve]
       vllm-ascend-spec check [options] -- [NAME=VALUE ...] vllm serve MODEL ..."""
DESCRIPTION = f"""{HELP}.

Takes every flag of `vllm serve`, the old ones of speculation among them, and prints what they come
to, what has no effect, and what would keep an engine from starting.

exit status:
  0  right, whatever warnings there are
  1  right, but an option has no effect or there are warnings, with --strict
  2  refused: an engine would not start
  3  cannot be checked: vLLM is missing, broken or of another version"""
RIGHT, NOT_STRICTLY, REFUSED, UNCHECKED = range(4)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add our own options; all other arguments are vLLM's."""
    parser.usage = USAGE
    parser.description = DESCRIPTION
    parser.add_argument("--json", action="store_true", help="print a JSON record")
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 on warnings and options without effect"
    )
    parser.add_argument(
        "--light",
        action="store_true",
        help="check without vLLM, in a tenth of a second: only flags that affect speculation, and "
        "no graphs, memory or backends",
    )
    parser.add_argument(
        "--device",
        metavar="KIND",
        help="apply our rules for cpu, cuda or npu; default: the device found",
    )


def run(args: argparse.Namespace) -> int:
    """Check, and print what was found."""
    asked = asked_of(args.arguments)
    own_device = os.environ.get(select.DEVICE_VARIABLE)
    changes = {**asked.environment, **device_variable(args.device)}
    with variables(changes), waiting("vllm-ascend-spec check: asking vLLM, loads no weights"):
        found = find(asked.arguments, is_light=args.light, own_device=own_device)
        record = check_report.record(found)

    def shown(text: str) -> str:
        return redact(text, args.arguments)

    for problem in found.problems[:1] if args.json else found.problems:
        sys.stderr.write(shown(f"vllm-ascend-spec check: error: {problem.message}") + "\n")
    if not found.problems and found.unchecked is not None:
        sys.stderr.write(shown(f"vllm-ascend-spec check: not checked: {found.unchecked}") + "\n")
    if args.json:
        sys.stdout.write(shown(json.dumps(record, indent=2)) + "\n")
    elif not found.problems:
        sys.stdout.write(shown(check_report.text(record)) + "\n")
    return exit_status(found, is_strict=args.strict)


def exit_status(found: CheckResult, *, is_strict: bool) -> int:
    """Return the exit status, as the help describes it."""
    if found.problems:
        return REFUSED
    if found.unchecked is not None:
        return UNCHECKED
    return NOT_STRICTLY if is_strict and (found.warnings or found.without_effect) else RIGHT
