"""Kernels as their host code launches them, and their lowering in triton-ascend's environment."""

from __future__ import annotations

import hashlib
import inspect
import json
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from tests.ops.triton_ascend.environment import ROOT, python

DRIVER = Path(__file__).with_name("driver.py")
FORMS = ("ttir.mlir", "masks.mlir", "linalg.mlir", "linalg.generic.mlir")
POINTERS = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int32: "*i32",
    torch.int64: "*i64",
}


class LoweringError(Exception):
    """triton-ascend does not lower a kernel; the message is what it says."""


@dataclass(frozen=True)
class Variant:
    """A kernel for certain types and compile-time values of its arguments.

    Attributes:
        module: name of the kernel's module.
        function: name of the kernel.
        signature: name and Triton type of each run-time argument.
        constants: name and value of all others.
    """

    module: str
    function: str
    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        kinds = [kind[1:] for _, kind in self.signature if kind.startswith(("*fp", "*bf"))]
        values = [f"{name}={value}" for name, value in self.constants]
        return f"{self.function}({', '.join([*dict.fromkeys(kinds), *values])})"

    @property
    def key(self) -> str:
        """A name for files."""
        return f"{self.function}-{hashlib.sha256(repr(self).encode()).hexdigest()[:12]}"


def split_arguments(
    kernel: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sort a launch's arguments into run-time ones and constants; options are left out."""
    parameters = inspect.signature(kernel.fn).parameters
    named = dict(zip(parameters, args, strict=False))
    named |= {name: value for name, value in kwargs.items() if name in parameters}
    if missing := set(parameters) - set(named):
        raise TypeError(f"{kernel.fn.__name__}: no value for {sorted(missing)}")
    values: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    for name, parameter in parameters.items():
        constant = "constexpr" in str(parameter.annotation) or named[name] is None
        (constants if constant else values)[name] = named[name]
    return values, constants


def type_of(value: torch.Tensor | float) -> str:
    """Return the Triton type of an argument."""
    if isinstance(value, torch.Tensor):
        return POINTERS[value.dtype]
    if isinstance(value, int) and not isinstance(value, bool):
        return "i32" if -(2**31) <= value < 2**31 else "i64"
    raise TypeError(f"no Triton type for {value!r}")


def variant_of(kernel: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Variant:
    """Return the variant that a launch with these arguments compiles."""
    values, constants = split_arguments(kernel, args, kwargs)
    signature = tuple((name, type_of(value)) for name, value in values.items())
    return Variant(kernel.fn.__module__, kernel.fn.__name__, signature, tuple(constants.items()))


def lower(variants: Iterable[Variant], folder: Path, *, root: Path = ROOT) -> dict[Variant, Path]:
    """Lower kernels, all in one process, and return the folder of each; done ones are reused.

    A folder holds the files of ``FORMS``, or ``error.txt``: use :func:`result` to read them.
    """
    places = {variant: folder / variant.key for variant in variants}
    with FileLock(folder / "lower.lock"):  # processes that test at once share the folder
        _lower_missing(places, folder, root)
    return places


def _lower_missing(places: dict[Variant, Path], folder: Path, root: Path) -> None:
    jobs = [
        {
            "root": str(root),
            "module": variant.module,
            "function": variant.function,
            "signature": dict(variant.signature),
            "constants": dict(variant.constants),
            "folder": str(place),
        }
        for variant, place in places.items()
        if not (place / FORMS[-1]).exists()
    ]
    if jobs:
        request = folder / "jobs.json"
        request.write_text(json.dumps(jobs))
        command = [str(python()), str(DRIVER), str(request)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise LoweringError(f"{DRIVER.name} failed:\n{run.stderr[-4000:]}")


def result(folder: Path, form: str) -> str:
    """Return one form of a lowered kernel.

    Raises:
        LoweringError: the kernel could not be lowered.
    """
    error = folder / "error.txt"
    if error.exists():
        raise LoweringError(error.read_text())
    return (folder / form).read_text()
