"""What a reference uses to refuse what the real op would refuse."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import torch

# The op that is running; a reference that is called by another runs under the caller's name.
AT_OP: ContextVar[str] = ContextVar("npu_sim_op", default="")

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INTS = (torch.int32, torch.int64)


class OpError(RuntimeError):
    """Arguments that the op's documentation forbids, or that its reference does not honour."""


def fail(reason: str) -> None:
    """Raise OpError with the running op's name before `reason`."""
    raise OpError(f"{AT_OP.get() or 'op'}: {reason}")


def require(holds: bool, reason: str) -> None:
    """Fail unless `holds`."""
    if not holds:
        fail(reason)


def require_dtype(name: str, tensor: torch.Tensor, allowed: Sequence[torch.dtype]) -> None:
    """Fail unless the argument `name` has one of the dtypes."""
    if tensor.dtype not in allowed:
        fail(f"{name} is {tensor.dtype}; valid: {', '.join(map(str, allowed))}")


def require_same_dtype(**tensors: torch.Tensor | None) -> None:
    """Fail unless all tensors that were given have one dtype."""
    dtypes = {name: tensor.dtype for name, tensor in tensors.items() if tensor is not None}
    if len(set(dtypes.values())) > 1:
        fail("dtypes differ: " + ", ".join(f"{name} {dtype}" for name, dtype in dtypes.items()))


def require_shape(name: str, tensor: torch.Tensor, *shape: int | None) -> None:
    """Fail unless the argument has the shape; None stands for any size."""
    fits = tensor.dim() == len(shape) and all(
        want is None or want == size for want, size in zip(shape, tensor.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        fail(f"{name} has shape {tuple(tensor.shape)}; valid: ({wanted})")


def require_choice(name: str, value: Any, valid: Sequence[Any]) -> None:
    """Fail unless `value` is one of `valid`."""
    if value not in valid:
        fail(f"{name} is {value!r}; valid: {', '.join(map(repr, valid))}")


def refuse(**arguments: Any) -> None:
    """Fail if an argument that the reference does not honour was given.

    Args:
        arguments: Values by name. None, False, 0 and "" count as not given.
    """
    for name, value in arguments.items():
        given = value is not None and (isinstance(value, torch.Tensor) or bool(value))
        if given:
            fail(f"the simulator has no reference for {name}={_brief(value)}")


def _brief(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a {value.dtype} tensor of shape {tuple(value.shape)}"
    return repr(value)
