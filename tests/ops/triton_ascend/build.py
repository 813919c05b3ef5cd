"""Compiles lowered kernels for this CPU with Debian's MLIR 19, so that they can be executed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from filelock import FileLock

from tests.ops.triton_ascend.environment import COMPILER, tool, tool_environment
from tests.ops.triton_ascend.lowering import result

RUNTIME = Path(__file__).with_name("runtime.c")
# Only for Ascend's own compiler.
HINTS = re.compile(r" \{hivm\.[a-z_]+\}")
PASSES = (
    "-convert-elementwise-to-linalg",
    "-one-shot-bufferize=allow-return-allocs-from-loops=true",
    "-convert-linalg-to-loops",
    "-expand-strided-metadata",
    "-lower-affine",
    "-convert-scf-to-cf",
    "-convert-cf-to-llvm",
    "-convert-arith-to-llvm",
    "-convert-math-to-llvm",
    "-convert-math-to-libm",
    "-convert-index-to-llvm",
    "-finalize-memref-to-llvm=use-generic-functions=true",
    "-convert-func-to-llvm",
    "-reconcile-unrealized-casts",
)


class BuildError(Exception):
    """A tool refused; the message is what it says."""


def run(command: list[str], source: Path) -> None:
    """Run a compiler's step over ``source``."""
    environment = tool_environment()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        name = Path(command[0]).name
        raise BuildError(f"{name} failed on {source}:\n{done.stderr[:3000]}")


def build(folder: Path) -> Path:
    """Return the shared library of a lowered kernel's folder, made now if need be.

    Raises:
        BuildError: a tool refused.
        LoweringError: the kernel could not be lowered.
    """
    library = folder / "kernel.so"
    with FileLock(folder / "kernel.lock"):  # processes that test at once share the folder
        if not library.exists():
            _compile(folder, library)
    return library


def _compile(folder: Path, library: Path) -> None:
    source, lowered = folder / "cpu.mlir", folder / "cpu.llvm.mlir"
    llvm, code, linked = folder / "cpu.ll", folder / "cpu.o", folder / "kernel.tmp.so"
    source.write_text(HINTS.sub("", result(folder, "linalg.mlir")))
    names = ("mlir-opt", "mlir-translate", "llc")
    mlir_opt, mlir_translate, llc = (str(tool(name)) for name in names)
    run([mlir_opt, str(source), *PASSES, "-o", str(lowered)], source)
    run([mlir_translate, "--mlir-to-llvmir", str(lowered), "-o", str(llvm)], lowered)
    run([llc, "-O2", "-relocation-model=pic", "-filetype=obj", str(llvm), "-o", str(code)], llvm)
    flags = ("-O2", "-shared", "-fPIC", "-Wall", "-Werror")
    run([COMPILER, *flags, str(RUNTIME), str(code), "-o", str(linked), "-lm"], code)
    linked.replace(library)
