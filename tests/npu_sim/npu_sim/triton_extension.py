"""Triton-Ascend's additions to Triton's language, for the interpreter.

Real ones are in `triton.language.extra.cann.extension` and `.libdevice` of triton-ascend, which
replaces Triton and needs CANN. These work on the NumPy arrays that Triton's interpreter keeps in
its tensors.
"""

import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import triton.language as tl
from triton.language import extra
from triton.runtime.interpreter import TensorHandle

CANN = "triton.language.extra.cann"


def _data(tensor: Any) -> np.ndarray:
    return tensor.handle.data


def _like(tensor: Any, data: np.ndarray, dtype: Any = None) -> Any:
    """Give a tensor of the language that holds `data`."""
    scalar = dtype or tensor.dtype.scalar
    shaped = scalar if data.ndim == 0 else tl.block_type(scalar, list(data.shape))
    return tl.core.tensor(TensorHandle(np.atleast_1d(data), scalar), shaped)


def _number(value: Any) -> int:
    """Give an integer that came as a constexpr, a number or a scalar tensor."""
    value = getattr(value, "value", value)
    return int(_data(value).reshape(-1)[0]) if isinstance(value, tl.core.tensor) else int(value)


def _slices(
    offsets: Sequence[Any], sizes: Sequence[Any], strides: Sequence[Any]
) -> tuple[slice, ...]:
    spans = []
    for offset, size, stride in zip(offsets, sizes, strides, strict=True):
        first, count, step = _number(offset), _number(size), _number(stride)
        spans.append(slice(first, first + count * step, step))
    return tuple(spans)


def get_element(src: Any, indice: Sequence[Any], **_: Any) -> Any:
    """Give one element as a scalar."""
    return _like(src, np.asarray(_data(src)[tuple(_number(i) for i in indice)]))


def extract_slice(
    ful: Any, offsets: Sequence[Any], sizes: Sequence[Any], strides: Sequence[Any], **_: Any
) -> Any:
    """Give a copy of a part of `ful`."""
    return _like(ful, _data(ful)[_slices(offsets, sizes, strides)].copy())


def insert_slice(
    ful: Any,
    sub: Any,
    offsets: Sequence[Any],
    sizes: Sequence[Any],
    strides: Sequence[Any],
    **_: Any,
) -> Any:
    """Give a copy of `ful` in which a part is `sub`."""
    data = _data(ful).copy()
    data[_slices(offsets, sizes, strides)] = _data(sub)
    return _like(ful, data)


def sort(ptr: Any, dim: Any = -1, descending: Any = False, **_: Any) -> Any:
    """Give the values in order along one dimension."""
    axis, data = _number(dim), np.sort(_data(ptr), axis=_number(dim))
    return _like(ptr, np.flip(data, axis).copy() if _number(descending) else data)


def _elementwise(function: Callable[[np.ndarray], np.ndarray], dtype: Any = None) -> Any:
    def apply(x: Any, **_: Any) -> Any:
        return _like(x, function(_data(x)), dtype)

    return apply


def _package(name: str, **members: Any) -> types.ModuleType:
    """Make a module that can be imported under `name`."""
    module = types.ModuleType(name)
    module.__path__ = []
    vars(module).update(members)
    sys.modules[name] = module
    return module


def install() -> None:
    """Make `triton.language.extra.cann` importable with what vllm-ascend uses of it."""
    if CANN in sys.modules:
        return
    extension = _package(
        f"{CANN}.extension",
        get_element=get_element,
        extract_slice=extract_slice,
        insert_slice=insert_slice,
        sort=sort,
    )
    libdevice = _package(
        f"{CANN}.libdevice",
        isnan=_elementwise(np.isnan, tl.int1),
        nearbyint=_elementwise(np.rint),
    )
    extra.cann = _package(CANN, extension=extension, libdevice=libdevice)
