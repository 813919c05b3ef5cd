"""``vllm-ascend-spec serve``: ``vllm serve`` with our platform and the library that it preloads."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from vllm_ascend_spec import versions
from vllm_ascend_spec.cli import env
from vllm_ascend_spec.devices import select
from vllm_ascend_spec.errors import PlatformError

HELP = "run `vllm serve` with this plugin selected; takes all arguments of `vllm serve`"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments: all are vLLM's."""


def environment(current: dict[str, str]) -> dict[str, str]:
    """Return the variables to set for ``vllm serve``, given the current environment."""
    changes = {}
    plugins = env.plugins(current)
    if plugins is not None and plugins != current.get(env.VARIABLE):
        changes[env.VARIABLE] = plugins
    device = select.find_device()
    if device is not None and device.preload is not None:
        library = Path(sys.prefix) / "lib" / device.preload
        preload = current.get("LD_PRELOAD", "")
        if library.exists() and library.stem.rstrip("0123456789") not in preload:
            changes["LD_PRELOAD"] = f"{library}:{preload}".rstrip(":")
    return changes


def problem() -> str | None:
    """Return why no server can be started here, or None."""
    choice = select.select_platform()
    if choice.note_level >= logging.ERROR:
        return choice.note
    device = select.find_device() if choice.platform is not None else None
    return device.import_problem_elsewhere() if device is not None else None


def run(args: argparse.Namespace) -> int:
    """Replace this process by ``vllm serve``."""
    versions.require_vllm()
    os.environ.update(environment(dict(os.environ)))
    if why := problem():
        raise PlatformError(why)
    program = versions.vllm_program()
    os.execv(program, [program, "serve", *args.arguments])
