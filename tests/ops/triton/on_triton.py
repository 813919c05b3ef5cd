"""A pytest plugin: the ops' tests run on the Triton backend, in the interpreter."""

from __future__ import annotations

from typing import Any

from triton.runtime.interpreter import InterpretedFunction

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
