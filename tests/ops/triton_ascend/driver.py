"""Runs in triton-ascend's environment: lowers kernels to the MLIR that Ascend's compiler takes.

Usage: ``python driver.py JOBS``, a JSON file with a list of jobs of these fields:

* ``root``: folder that the module's name is relative to;
* ``module``, ``function``: the kernel; packages around the module are not imported, so that a
  kernel's own package need not be importable here;
* ``signature``: type of each argument, e.g. ``*fp32``; ``constants``: values of all others;
* ``folder``: where to write.

Each folder receives ``error.txt``, or

* ``ttir.mlir``: Triton's IR after its own passes, in MLIR's generic form with locations;
* ``masks.mlir``: the same after triton-ascend's first pass, which drops masks it cannot keep;
* ``linalg.mlir``: the lowered IR, and ``linalg.generic.mlir``, the same in generic form.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import types
from pathlib import Path

from triton._C.libtriton import ir
from triton.backends.ascend.compiler import AscendBackend, make_ttir, ttir_to_linalg
from triton.backends.ascend.utils import _get_triton_adapter_opt_path
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import JITFunction

TARGET = GPUTarget("npu", "Ascend910B3", 32)
BACKEND = AscendBackend(TARGET)
FIRST_PASS = "--discrete-mask-access-conversion=compile-on-910-95=False force-simt-template=False"


def load(root: str, module: str, function: str) -> JITFunction:
    """Import a kernel's module under packages that are empty but for their path."""
    folder, name = Path(root), ""
    for part in module.split(".")[:-1]:
        folder, name = folder / part, f"{name}.{part}".lstrip(".")
        package = types.ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules.setdefault(name, package)
    if "." not in module and root not in sys.path:
        sys.path.insert(0, root)
    return getattr(importlib.import_module(module), function)


def adapter(source: Path, *options: str) -> str:
    """Run triton-ascend's optimiser over a file and return what it prints."""
    command = [_get_triton_adapter_opt_path(), str(source), *options]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def lower(job: dict) -> None:
    """Lower one kernel and write all its forms."""
    folder = Path(job["folder"])
    kernel = load(job["root"], job["module"], job["function"])
    source = ASTSource(fn=kernel, signature=job["signature"], constants=job["constants"])
    options = BACKEND.parse_options({})
    context = ir.context()
    ir.load_dialects(context)
    BACKEND.load_dialects(context)
    codegen = BACKEND.get_codegen_implementation()
    module = source.make_ir(options, codegen, BACKEND.get_module_map(), context)
    metadata = {"target": TARGET, **options.__dict__}
    module = make_ttir(module, metadata, options)

    plain = folder / "ttir.plain.mlir"
    plain.write_text(str(module))
    generic = ("--mlir-print-op-generic", "--mlir-print-debuginfo")
    (folder / "ttir.mlir").write_text(adapter(plain, *generic))
    (folder / "masks.mlir").write_text(adapter(plain, FIRST_PASS, *generic))
    lowered = folder / "linalg.mlir"
    lowered.write_text(ttir_to_linalg(module, metadata, options, named_ops=True))
    (folder / "linalg.generic.mlir").write_text(adapter(lowered, generic[0]))


def hint(folder: Path) -> str:
    """Return what is known to bring triton-ascend down and is in a kernel's IR, if anything."""
    plain = folder / "ttir.plain.mlir"
    if plain.exists() and "cf.cond_br" in plain.read_text():
        return (
            "\nThe IR has branches (cf.cond_br): Triton 3.2 makes one of an `if` around a bare "
            "call of a helper that returns something. Assign the result, or return nothing."
        )
    return ""


def explain(error: Exception, folder: Path) -> str:
    """Return what went wrong; of an optimiser that died, what it printed first."""
    if isinstance(error, subprocess.CalledProcessError):
        printed = error.stderr if isinstance(error.stderr, str) else error.stderr.decode()
        return f"triton-adapter-opt failed: {printed[:2000]}{hint(folder)}"
    return f"{type(error).__name__}: {str(error)[-2000:]}"


def main() -> None:
    """Lower all jobs of the file given as the argument."""
    for job in json.loads(Path(sys.argv[1]).read_text()):
        Path(job["folder"]).mkdir(parents=True, exist_ok=True)
        try:
            lower(job)
        except Exception as error:
            folder = Path(job["folder"])
            (folder / "error.txt").write_text(explain(error, folder))


if __name__ == "__main__":
    main()
