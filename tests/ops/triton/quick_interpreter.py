"""Triton's interpreter in a third of its time: what it makes anew each time is kept.

Importing this changes it. What is computed stays the same.
"""

from __future__ import annotations

from typing import Any

from triton.language import core
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpretedFunction, InterpreterOptions

_slow_call = InterpretedFunction.__call__
_called: set[Any] = set()


def call(self: InterpretedFunction, *args: Any, **kwargs: Any) -> Any:
    """Call a device function; patch Triton's language for it the first time only.

    The interpreter does so in every call, without undoing it: half of its time.
    """
    if self.fn in _called:
        return self.rewrite()(*args, **kwargs)
    _called.add(self.fn)
    return _slow_call(self, *args, **kwargs)


InterpretedFunction.__call__ = call
# Conditions of assertions that it then leaves out: 40% of what is left.
interpreter.interpreter_builder.options = InterpreterOptions(sanitize_overflow=False)

_slow_dtype = interpreter._get_np_dtype
_dtypes: dict[str, Any] = {}


def dtype_in_numpy(dtype: Any) -> Any:
    """Return NumPy's dtype of one of Triton's; the interpreter makes its table anew each time."""
    if dtype.name not in _dtypes:
        _dtypes[dtype.name] = _slow_dtype(dtype)
    return _dtypes[dtype.name]


interpreter._get_np_dtype = dtype_in_numpy

# Types and shapes, which the interpreter makes and compares anew with each operation: more than
# half of what was then left. What is kept here never changes, and is the same for equal keys.
_slow_block_type = core.block_type.__init__
_slow_tensor = core.tensor.__init__
_slow_unwrap = core._unwrap_if_constexpr
_slow_broadcast = TritonSemantic.broadcast_impl_value
_slow_cast = TritonSemantic.cast
_slow_computation_type = TritonSemantic.computation_type_impl
_block_types: dict[Any, dict[str, Any]] = {}
_shapes: dict[Any, tuple[Any, Any]] = {}
_computation_types: dict[Any, Any] = {}
_NOTHING_TO_UNWRAP = frozenset({int, float, bool, str, type(None), core.tensor, core.dtype})


def sizes_of(shape: Any) -> tuple[Any, ...]:
    """Return the sizes of a shape, each one a number or what Triton calls a constexpr."""
    return tuple([s if type(s) is int else getattr(s, "value", s) for s in shape])


def make_block_type(self: Any, element_ty: Any, shape: Any) -> None:
    """Make the type of a block; look at its shape the first time only."""
    key = (element_ty.name, sizes_of(shape))
    if key not in _block_types:
        _slow_block_type(self, element_ty, shape)
        _block_types[key] = {k: v for k, v in vars(self).items() if k != "element_ty"}
    vars(self).update(_block_types[key], element_ty=element_ty)


def make_tensor(self: Any, handle: Any, type: Any) -> None:
    """Make a tensor, whose shape is that of its type."""
    key = sizes_of(type.shape) if type.is_block() else ()
    if key not in _shapes:
        _slow_tensor(self, handle, type)
        _shapes[key] = (self.numel, self.shape)
    self.handle, self.type, self.dtype = handle, type, type.scalar
    self.numel, self.shape = _shapes[key]


def unwrap(o: Any) -> Any:
    """Return what a constexpr holds; most are none, and hold none."""
    kind = type(o)
    if kind is core.constexpr:
        return o.value
    return o if kind in _NOTHING_TO_UNWRAP else _slow_unwrap(o)


def broadcast(self: Any, lhs: Any, rhs: Any) -> Any:
    """Return both with one shape, which most have."""
    ours, theirs = lhs.type, rhs.type
    both = ours.is_block() and theirs.is_block()
    if both and sizes_of(ours.shape) == sizes_of(theirs.shape):
        return lhs, rhs
    return _slow_broadcast(self, lhs, rhs)


def cast(self: Any, input: Any, dst_ty: Any, fp_downcast_rounding: Any = None) -> Any:
    """Convert a tensor; most have the type already."""
    if fp_downcast_rounding is None and type(dst_ty) is core.dtype and input.dtype == dst_ty:
        return input
    return _slow_cast(self, input, dst_ty, fp_downcast_rounding)


def computation_type(self: Any, a: Any, a_is_scalar: bool, b: Any, *rest: bool) -> Any:
    """Return the type that two are computed in."""
    key = (a.name, a_is_scalar, b.name, *rest)
    if key not in _computation_types:
        _computation_types[key] = _slow_computation_type(self, a, a_is_scalar, b, *rest)
    return _computation_types[key]


core.block_type.__init__ = make_block_type
core.tensor.__init__ = make_tensor
core._unwrap_if_constexpr = unwrap
TritonSemantic.broadcast_impl_value = broadcast
TritonSemantic.cast = cast
TritonSemantic.computation_type_impl = computation_type

_slow_patch = interpreter._patch_lang
_patched: set[int] = set()


def patch_lang(fn: Any) -> Any:
    """Patch Triton's language for a module of kernels the first time, and leave it so.

    The interpreter does and undoes it in every launch, which takes longer than a small one.
    """
    if id(fn.__globals__) in _patched:
        return interpreter._LangPatchScope()
    _patched.add(id(fn.__globals__))
    scope = _slow_patch(fn)
    scope._changes.clear()
    return scope


interpreter._patch_lang = patch_lang
