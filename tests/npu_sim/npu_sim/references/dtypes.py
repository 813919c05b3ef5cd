"""Dtypes as torch_npu passes them: torch's own, or the number of PyTorch's ScalarType."""

import torch

from npu_sim.references.checks import require_choice

_NUMBERS = {
    0: torch.uint8,
    1: torch.int8,
    3: torch.int32,
    5: torch.float16,
    6: torch.float32,
    12: torch.qint8,
    13: torch.quint8,
    15: torch.bfloat16,
}


def dtype_of(name: str, value: torch.dtype | int | None, default: torch.dtype) -> torch.dtype:
    """Give the dtype that an argument names.

    Args:
        name: The argument, for the error.
        value: A dtype, its number, or None for the default.
        default: What None stands for.
    """
    if value is None:
        return default
    if isinstance(value, torch.dtype):
        return value
    require_choice(name, value, tuple(_NUMBERS))
    return _NUMBERS[value]
