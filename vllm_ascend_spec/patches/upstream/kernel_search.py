"""A second engine of a process ends where numba was imported.

Why: to replace Triton kernels by C++ ones, vLLM asks every attribute of every module for its
``__dict__`` (vllm/triton_utils/dispatcher.py:_rebind_kernels) and expects a mapping. llvmlite,
which numba imports, has a library object that returns a function for any name, and the engine ends
with ``'_lib_fn_wrapper' object has no attribute 'get'``.
How: in that module ``vars`` is a function that bypasses the object's own ``__getattr__``.
Until: vLLM checks the type. 0.33 does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm.triton_utils import dispatcher

    _patches.set(dispatcher, "vars", attributes_of)


def attributes_of(value: Any) -> Mapping[str, Any]:
    """Return the attributes that an object itself holds, without its ``__getattr__``."""
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
