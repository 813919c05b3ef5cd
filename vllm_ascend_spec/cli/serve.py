"""``vllm-ascend-spec serve``: ``vllm serve`` with our platform and the libraries it wants."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from vllm_ascend_spec import versions
from vllm_ascend_spec.platform import select

HELP = "run `vllm serve` with this plugin; takes all its arguments"
# vLLM's CPU worker asks for Intel's OpenMP; the distribution intel-openmp puts it there.
INTEL_OPENMP = "libiomp5.so"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All arguments are vLLM's."""


def environment(current: dict[str, str]) -> dict[str, str]:
    """Return what has to be set for ``vllm serve``, given the current environment."""
    changes = {}
    plugins = current.get("VLLM_PLUGINS")
    if plugins is not None and select.PLUGIN_NAME not in plugins.split(","):
        names = [name for name in plugins.split(",") if name not in ("", select.VLLM_ASCEND_PLUGIN)]
        changes["VLLM_PLUGINS"] = ",".join([*names, select.PLUGIN_NAME])
    library = Path(sys.prefix) / "lib" / INTEL_OPENMP
    preload = current.get("LD_PRELOAD", "")
    if select.detect_device() == "cpu" and library.exists() and "libiomp" not in preload:
        changes["LD_PRELOAD"] = f"{library}:{preload}".rstrip(":")
    return changes


def run(args: argparse.Namespace) -> int:
    """Replace this process by ``vllm serve``."""
    versions.require_vllm()
    os.environ.update(environment(dict(os.environ)))
    executable = str(Path(sys.executable).with_name("vllm"))
    os.execv(executable, [executable, "serve", *args.arguments])
