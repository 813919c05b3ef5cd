"""Where triton-ascend and MLIR's tools are, which ``.ci/setup-triton-ascend`` installs."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HOW = "run `make setup-triton-ascend`"
TOOLS = ("mlir-opt", "mlir-translate", "llc")
COMPILER = os.environ.get("CC", "cc")


def venv() -> Path:
    """Return the folder that should hold triton-ascend's virtual environment."""
    return ROOT / os.environ.get("TRITON_ASCEND_VENV", ".venv-triton-ascend")


def python() -> Path:
    """Return the Python that imports triton-ascend as ``triton``."""
    return venv() / "bin" / "python"


def mlir_roots() -> list[Path]:
    """Return the folders that may hold ``usr/lib/llvm-19``, the preferred first."""
    named = os.environ.get("MLIR_ROOT")
    return [*([Path(named)] if named else []), venv() / "mlir", Path("/")]


@cache
def tool(name: str) -> Path | None:
    """Return the path of one of LLVM 19's tools, or None if it is not installed."""
    on_path = shutil.which(f"{name}-19")
    in_roots = [root / "usr" / "lib" / "llvm-19" / "bin" / name for root in mlir_roots()]
    places = [*in_roots, *([Path(on_path)] if on_path else [])]
    return next((place for place in places if place.is_file()), None)


def tool_environment() -> dict[str, str]:
    """Return the process environment for the tools: unpacked ones need their own libraries."""
    folders = ("usr/lib/llvm-19/lib", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu")
    unpacked = [root / folder for root in mlir_roots() if root != Path("/") for folder in folders]
    paths = [str(path) for path in unpacked if path.is_dir()]
    paths += filter(None, [os.environ.get("LD_LIBRARY_PATH")])
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(paths)} if paths else dict(os.environ)


@cache
def missing_lowering() -> str | None:
    """Return why kernels cannot be lowered here, or None if they can."""
    if not python().is_file():
        return f"no triton-ascend in {venv().name}/: {HOW}"
    return None


@cache
def missing_execution() -> str | None:
    """Return why the lowered IR cannot be executed here, or None if it can."""
    missing = [name for name in TOOLS if tool(name) is None]
    if missing:
        return f"{', '.join(missing)} of LLVM 19 not found: {HOW}"
    if shutil.which(COMPILER) is None:
        return f"no C compiler {COMPILER}"
    return missing_lowering()


requires_lowering = pytest.mark.skipif(
    missing_lowering() is not None, reason=missing_lowering() or "can lower"
)
requires_execution = pytest.mark.skipif(
    missing_execution() is not None, reason=missing_execution() or "can execute"
)
