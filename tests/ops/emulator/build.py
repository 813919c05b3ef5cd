"""Compile AscendC kernels with g++ and the emulator's headers, and call them through ctypes."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from ops.emulator.report import BrokenRule, EmulatorError, EmulatorOptions, EmulatorStats

ROOT = Path(__file__).resolve().parents[3]
INCLUDE = ROOT / "ops" / "emulator" / "include"
COMPILER = os.environ.get("CXX", "g++")
FLAGS = (
    "-std=c++17",
    "-fPIC",
    "-shared",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-fno-gnu-unique",  # mutants of a kernel must not share what inline functions keep
    "-Wall",
)

requires_compiler = pytest.mark.skipif(
    shutil.which(COMPILER) is None, reason=f"the emulator needs {COMPILER}"
)

# What the compiler is trusted to order by itself, see emulator/report.h.
AUTO_NONE, AUTO_VECTOR, AUTO_SCALAR = 0, 1, 2
NAN_PROPAGATE, NAN_IGNORE = 0, 1


def _cache() -> Path:
    named = os.environ.get("VLLM_ASCEND_SPEC_EMULATOR_CACHE")
    path = Path(named or Path(tempfile.gettempdir()) / f"vllm-ascend-spec-emulator-{os.getuid()}")
    path.mkdir(parents=True, exist_ok=True)
    return path


def included(source: Path, directories: Iterable[Path]) -> list[Path]:
    """Return ``source`` and every file it includes by name, directly or not, in order."""
    places, found, todo = list(directories), [], [source.resolve()]
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found.append(path)
        for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.MULTILINE):
            for place in (path.parent, *places):
                if (place / name).is_file():
                    todo.append((place / name).resolve())
                    break
    return found


def build(
    source: Path,
    *,
    include: Iterable[Path] = (),
    defines: Iterable[str] = (),
    optimise: bool = True,
) -> Path:
    """Compile ``source`` into a shared library and return its path.

    Args:
        source: an emulator host file: it includes ``emulator/launch.h`` and the kernel.
        include: directories to look in after the source's own and before the emulator's.
        defines: macros, as ``NAME`` or ``NAME=value``.
        optimise: False compiles twice as fast what then runs five times as long.

    Raises:
        RuntimeError: the compiler refused; the message holds what it said.
    """
    directories = [*include, INCLUDE]
    arguments = [*FLAGS, "-O2" if optimise else "-O0", *(f"-D{d}" for d in defines)]
    digest = hashlib.sha256(repr(arguments).encode())
    for path in included(source, directories):
        digest.update(path.read_bytes())
    library = _cache() / f"{source.stem}-{digest.hexdigest()[:20]}.so"
    # Processes that test at once compile each library once.
    with FileLock(library.with_suffix(".lock")):
        if not library.exists():
            _compile(source, library, arguments, directories)
    return library


def _compile(
    source: Path, library: Path, arguments: Iterable[str], directories: Iterable[Path]
) -> None:
    partial = library.with_suffix(f".{os.getpid()}.tmp")
    places = [flag for d in directories for flag in ("-I", str(d))]
    command = [COMPILER, *arguments, *places, str(source), "-o", str(partial)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{run.stderr[:4000]}")
    partial.replace(library)


@cache
def load(library: Path) -> ctypes.CDLL:
    """Load a shared library once."""
    return ctypes.CDLL(str(library))


@dataclass(frozen=True)
class Host:
    """The launchers of one library, see "The interface" in ops/emulator/README.md."""

    library: Path
    checks: bool = True
    auto_sync: int = AUTO_VECTOR
    nan_mode: int = NAN_PROPAGATE
    strict_positions: bool = False

    def __call__(self, name: str, num_blocks: int, *arguments: Any) -> EmulatorStats:
        """Launch ``name`` on ``num_blocks`` cores.

        Tensors are passed by address, bool and int as int64, float as double; anything from
        ctypes goes as it is.

        Raises:
            EmulatorError: the kernel broke a rule.
        """
        options = EmulatorOptions(self.checks, self.auto_sync, self.nan_mode, self.strict_positions)
        stats, broken = EmulatorStats(), BrokenRule()
        function = getattr(load(self.library), name)
        function.restype = ctypes.c_int
        status = function(
            ctypes.byref(options),
            ctypes.byref(stats),
            ctypes.byref(broken),
            ctypes.c_int32(num_blocks),
            *(_pass(a) for a in arguments),
        )
        if status != 0:
            raise EmulatorError(broken)
        return stats


def _pass(argument: Any) -> Any:
    if argument is None:
        return ctypes.c_void_p(None)
    if hasattr(argument, "data_ptr"):
        return ctypes.c_void_p(argument.data_ptr())
    if isinstance(argument, int):
        return ctypes.c_int64(argument)
    if isinstance(argument, float):
        return ctypes.c_double(argument)
    return argument
