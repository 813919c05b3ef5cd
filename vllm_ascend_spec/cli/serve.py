"""``vllm-ascend-spec serve``: ``vllm serve`` with our platform and the libraries it wants."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from vllm_ascend_spec import versions
from vllm_ascend_spec.cli import env
from vllm_ascend_spec.errors import PlatformError
from vllm_ascend_spec.platform import ascend_host, select

HELP = "run `vllm serve` with this plugin; takes all its arguments"
# vLLM's CPU worker asks for Intel's OpenMP; the distribution intel-openmp puts it there.
INTEL_OPENMP = "libiomp5.so"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All arguments are vLLM's."""


def environment(current: dict[str, str]) -> dict[str, str]:
    """Return what has to be set for ``vllm serve``, given the current environment."""
    changes = {}
    plugins = env.plugins(current)
    if plugins is not None and plugins != current.get(env.VARIABLE):
        changes[env.VARIABLE] = plugins
    library = Path(sys.prefix) / "lib" / INTEL_OPENMP
    preload = current.get("LD_PRELOAD", "")
    if select.detect_device() == "cpu" and library.exists() and "libiomp" not in preload:
        changes["LD_PRELOAD"] = f"{library}:{preload}".rstrip(":")
    return changes


def obstacle() -> str | None:
    """Return why no server can be started here, or None."""
    choice = select.select_platform()
    if choice.is_refusal:
        return choice.note
    is_npu = choice.platform is not None and select.detect_device() == "npu"
    return ascend_host.import_problem_elsewhere() if is_npu else None


def run(args: argparse.Namespace) -> int:
    """Replace this process by ``vllm serve``."""
    versions.require_vllm()
    os.environ.update(environment(dict(os.environ)))
    if reason := obstacle():
        raise PlatformError(reason)
    executable = str(Path(sys.executable).with_name("vllm"))
    os.execv(executable, [executable, "serve", *args.arguments])
