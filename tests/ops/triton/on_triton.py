"""A pytest plugin: the ops' tests run on the Triton backend, in the interpreter."""

from __future__ import annotations

from typing import Any

from triton.runtime import interpreter
from triton.runtime.interpreter import InterpretedFunction, InterpreterOptions

from vllm_ascend_spec.ops.registry import PREFERENCE

# Before the tests are imported: they take their backends from here.
PREFERENCE["cpu"] = ("triton",)

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
