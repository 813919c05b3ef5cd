"""The table of op references that the simulator registers for the NPU.

A reference is a plain function on tensors with the signature of the op's schema, defaults included
(PyTorch leaves out trailing arguments that equal their default). It is written with aten ops and
knows nothing of the simulator, so it runs on tensors of any device and is tested on a CPU's.
"""

from collections.abc import Callable
from typing import Any

from npu_sim.references.checks import AT_OP

Reference = Callable[..., Any]

# By qualified name, with the overload where there is one: "npu::npu_format_cast.Tensor".
REFERENCES: dict[str, Reference] = {}
# Shapes and dtypes of outputs, for ops whose schema we define and that graphs are traced through.
META: dict[str, Reference] = {}
# Ops that ask the host something and launch nothing on the device: never taped nor counted.
HOST_ONLY: set[str] = set()


def reference(
    name: str, *, meta: Reference | None = None, host_only: bool = False
) -> Callable[[Reference], Reference]:
    """Register the decorated function as the reference of one op.

    Args:
        name: Qualified name with the overload, such as "npu::npu_rms_norm".
        meta: What gives the outputs' shapes and dtypes on meta tensors.
        host_only: The op launches nothing on the device.

    Returns:
        A decorator that returns the function as it was.

    Raises:
        ValueError: The op has a reference already.
    """

    def register(function: Reference) -> Reference:
        if name in REFERENCES:
            raise ValueError(f"{name} has two references")
        REFERENCES[name] = _named(name, function)
        if meta is not None:
            META[name] = meta
        if host_only:
            HOST_ONLY.add(name)
        return function

    return register


def _named(name: str, function: Reference) -> Reference:
    """Wrap `function` so that what its checks raise names the op that was called."""

    def call(*args: Any, **kwargs: Any) -> Any:
        token = AT_OP.set(name)
        try:
            return function(*args, **kwargs)
        finally:
            AT_OP.reset(token)

    call.__name__ = name
    call.__doc__ = function.__doc__
    call.__wrapped__ = function  # type: ignore[attr-defined]
    return call
