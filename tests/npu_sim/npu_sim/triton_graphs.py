"""Triton kernels in code that is compiled: each launch becomes an op of the graph.

TorchDynamo knows Triton's own kernels and makes ops of their launches. The interpreter's are Python
to it, which it would trace into.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# All tensors count as changed: which of them are is not known. `launch` stands for the kernel and
# for all arguments that are neither tensors nor integers.
SCHEMA = "triton_kernel(Tensor(a!)[] tensors, SymInt[] numbers, SymInt[] grid, int launch) -> ()"
KIND_TENSOR, KIND_NUMBER, KIND_OTHER = range(3)

# Name or position of each argument, its kind, and itself if it is of the third one.
Form = tuple[tuple[Any, int, Any], ...]
_kernels: list[Any] = []
_launches: list[tuple[int, Form]] = []
_kept: list[torch.library.Library] = []
_untraced: list[Callable[..., Any]] = []


def install() -> None:
    """Define the op, and let kernels call it where they are traced."""
    from triton.runtime.interpreter import InterpretedFunction

    library = torch.library.Library("npu_sim", "DEF")
    _kept.append(library)
    library.define(SCHEMA)
    library.impl("triton_kernel", _run, "PrivateUse1")
    library.impl("triton_kernel", lambda *_: None, "Meta")
    InterpretedFunction.__init__ = _numbered(InterpretedFunction.__init__)  # type: ignore[method-assign]
    _untraced[:] = [InterpretedFunction.run]
    InterpretedFunction.run = _traceable(InterpretedFunction.run)  # type: ignore[method-assign]


def _numbered(create: Callable[..., None]) -> Callable[..., None]:
    """Give each kernel a number, which TorchDynamo sees as a constant."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        create(self, *args, **kwargs)
        self.npu_sim_number = len(_kernels)
        _kernels.append(self)

    return init


def _launch_of(number: int, form: Form) -> int:
    """Give the number of a launch; it is called while a graph is traced."""
    if (number, form) not in _launches:
        _launches.append((number, form))
    return _launches.index((number, form))


# As torch._dynamo.assume_constant_result does, which takes a second to import.
_launch_of._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _traceable(run: Callable[..., Any]) -> Callable[..., Any]:
    def launch(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            return run(self, *args, grid=grid, warmup=warmup, **kwargs)
        tensors, numbers, form = [], [], []
        for name, value in [*enumerate(args), *kwargs.items()]:
            if isinstance(value, torch.Tensor):
                tensors.append(value)
                form.append((name, KIND_TENSOR, None))
            elif isinstance(value, int) and not isinstance(value, bool):
                numbers.append(value)
                form.append((name, KIND_NUMBER, None))
            else:
                form.append((name, KIND_OTHER, value))
        number = _launch_of(self.npu_sim_number, tuple(form))
        torch.ops.npu_sim.triton_kernel(tensors, numbers, list(grid), number)
        return None

    return launch


def _run(tensors: list[torch.Tensor], numbers: list[int], grid: list[int], launch: int) -> None:
    """Launch a kernel with the arguments that it was traced with."""
    number, form = _launches[launch]
    values = {KIND_TENSOR: iter(tensors), KIND_NUMBER: iter(numbers)}
    args, kwargs = [], {}
    for name, kind, other in form:
        value = other if kind == KIND_OTHER else next(values[kind])
        if isinstance(name, int):
            args.append(value)
        else:
            kwargs[name] = value
    # Not by its launch: a pass of a compiler runs kernels while it compiles.
    (run,) = _untraced
    run(_kernels[number], *args, grid=tuple(grid), warmup=False, **kwargs)
