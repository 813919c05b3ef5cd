"""Triton kernels on the simulated NPU: Triton's interpreter on the tensors' own memory.

The interpreter copies a kernel's tensors to the host and back. Here the memory of a device is host
memory already, so the kernel gets aliases of it, and what it writes stays written. A launch is one
device op, as on a real NPU, whatever NumPy does for it. A kernel that has a reference, because
interpreting it takes too long, is computed by that (`references/triton_*.py`).
"""

import dataclasses
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from npu_sim.references.registry import REFERENCES

# AI cores with two vector cores each, and those with 192 KiB of buffer, as a 910B1 has 24. Kernels
# divide their work by the number of cores, and the interpreter runs one after the other, so there
# are fewer here.
DEVICE_PROPERTIES = {"num_aicore": 2, "num_vectorcore": 4, "max_shared_mem": 192 * 1024}
TARGET = "Ascend910B1"

# "1" has even the kernels interpreted that have a reference.
INTERPRET_ALL = "NPU_SIM_INTERPRET_ALL"

Alias = Callable[[torch.Tensor], torch.Tensor]
Launch = Callable[[str, Callable[..., Any]], Callable[..., Any]]


class TritonModeError(RuntimeError):
    """Triton was imported in a mode that the bridge cannot use any more."""


def install(alias: Alias, as_device_op: Launch) -> None:
    """Make Triton run on the simulated NPU, for the whole process.

    Args:
        alias: Gives a CPU tensor on the memory of an NPU tensor; other tensors as they are.
        as_device_op: Wraps a function, given a name, so that a call is one device op.

    Raises:
        TritonModeError: Triton was imported to compile, so kernels may exist that cannot run.
    """
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise TritonModeError("Triton was imported before the simulator: set TRITON_INTERPRET=1")
    os.environ["TRITON_INTERPRET"] = "1"
    _choose_driver()
    _patch_language_once()
    _skip_overflow_checks()
    _remember_dtypes()
    _launch_on_aliases(alias, as_device_op)
    from npu_sim import triton_extension, triton_graphs, triton_repairs

    triton_extension.install()
    triton_repairs.install()
    triton_graphs.install()


def _choose_driver() -> None:
    """Tell Triton that an NPU is its only device."""
    import triton
    from triton import backends
    from triton.backends.compiler import GPUTarget

    class Utils:
        @staticmethod
        def get_device_properties(device: int) -> dict[str, int]:
            return dict(DEVICE_PROPERTIES)

    class Driver:
        utils = Utils()

        @staticmethod
        def is_active() -> bool:
            return True

        @staticmethod
        def get_current_target() -> GPUTarget:
            return GPUTarget("npu", TARGET, 32)

        @staticmethod
        def get_active_torch_device() -> torch.device:
            return torch.device("npu", torch.npu.current_device())

        @staticmethod
        def get_current_device() -> int:
            return torch.npu.current_device()

        @staticmethod
        def get_current_stream(device: int | None = None) -> int:
            return 0

        @staticmethod
        def get_device_interface() -> Any:
            return torch.npu

    backends.backends.clear()
    backends.backends["npu"] = backends.Backend(compiler=None, driver=Driver)
    triton.runtime.driver.set_active(Driver())


def _patch_language_once() -> None:
    """Keep Triton's language as the interpreter patches it.

    The interpreter patches it for every launch and every call of one kernel by another, and takes
    back the former only. That is most of the time of a small kernel.
    """
    from triton import language
    from triton.runtime import interpreter

    patch, patched = interpreter._patch_lang, set()
    nothing_to_restore = interpreter._LangPatchScope()

    def patch_once(function: Any) -> Any:
        visible = function.__globals__.values()
        modules = tuple(any(v is m for v in visible) for m in (language, language.core))
        if modules not in patched:
            patch(function)
            patched.add(modules)
        return nothing_to_restore

    interpreter._patch_lang = patch_once


def _skip_overflow_checks() -> None:
    """Let integers wrap, as a device does; checking each operation takes as long as the rest."""
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)


def _remember_dtypes() -> None:
    """Keep NumPy's dtype of each of Triton's; the interpreter makes a table for every value."""
    from triton.runtime import interpreter

    look_up, known = interpreter._get_np_dtype, {}

    def remembered(dtype: Any) -> Any:
        if dtype.name not in known:
            known[dtype.name] = look_up(dtype)
        return known[dtype.name]

    interpreter._get_np_dtype = remembered


def _reference_of(name: str, parameters: list[str]) -> Callable[..., Any] | None:
    """Give what computes a kernel faster than the interpreter, if there is such a thing.

    A kernel of another version, with other parameters, is interpreted.
    """
    function = REFERENCES.get(name)
    if function is None or os.environ.get(INTERPRET_ALL) == "1":
        return None
    fits = list(inspect.signature(inspect.unwrap(function)).parameters) == list(parameters)
    return function if fits else None


def _launch_on_aliases(alias: Alias, as_device_op: Launch) -> None:
    """Replace the interpreter's copies to the host and back, and count each launch."""
    from triton.runtime import interpreter

    executor = interpreter.GridExecutor
    run = executor.__call__

    def alias_of(argument: Any) -> Any:
        if isinstance(argument, tuple):
            return interpreter._tuple_create(argument, map(alias_of, argument))
        if not hasattr(argument, "data_ptr"):
            return argument
        inner = alias(interpreter._unwrap_tensor(argument))
        return interpreter._rewrap_tensor(inner, original_tensor=argument)

    def on_aliases(
        self: Any, args: Any, kwargs: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        return [alias_of(a) for a in args], {key: alias_of(a) for key, a in kwargs.items()}

    def nothing_to_copy_back(self: Any, *_: Any) -> None:
        """Leave the tensors alone: the kernel wrote to their memory."""

    def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        name = f"triton::{getattr(self.fn, '__name__', 'kernel')}"
        function = _reference_of(name, self.arg_names)
        if function is None:
            return as_device_op(name, lambda *a, **k: run(self, *a, **k))(*args, **kwargs)
        known = {key: value for key, value in kwargs.items() if key in self.arg_names}
        return as_device_op(name, function)(*args, **known)

    executor._init_args_hst = on_aliases
    executor._restore_args_dev = nothing_to_copy_back
    executor.__call__ = launch
