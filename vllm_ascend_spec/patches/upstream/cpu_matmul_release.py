"""Let go of an ended engine's matrix multiplications, but not while another engine is compiled.

Why: on a CPU a linear layer owns a oneDNN handler, and frees it by a pointer that is stored in a
tensor (vllm/_custom_ops.py:CPUDNNLGEMMHandler). The garbage collector may do that at any time.
While PyTorch traces, operations go to fake tensors or shape-only kernels, which cannot read that
tensor. The handler is then never freed, and printing the error prints the tensor, which fails
again, until the stack overflows. Processes with a second engine crashed.
How: handlers to be freed wait in a list. It is emptied when the next handler is made or ends,
unless PyTorch is tracing.
Until: vLLM keeps the pointer as a number, and frees the handler outside of PyTorch's dispatcher.
0.31 to 0.33 do not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert
# The function that frees a handler, and the tensor with the handler's pointer.
_waiting: list[tuple[Callable[[int], None], Any]] = []


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm._custom_ops import CPUDNNLGEMMHandler

    stock = CPUDNNLGEMMHandler.__init__

    def __init__(self: Any) -> None:  # noqa: N807
        stock(self)
        free_waiting()

    def __del__(self: Any) -> None:  # noqa: N807
        if self.handler_tensor is not None and not sys.is_finalizing():
            _waiting.append((self.dtor, self.handler_tensor))
            free_waiting()

    _patches.set(CPUDNNLGEMMHandler, "__init__", __init__)
    _patches.set(CPUDNNLGEMMHandler, "__del__", __del__)


def free_waiting() -> None:
    """Free all waiting handlers, unless PyTorch is tracing."""
    if is_tracing():
        return
    while _waiting:
        free, pointer = _waiting.pop()
        free(pointer.item())


def is_tracing() -> bool:
    """Tell whether PyTorch diverts operations of this thread, as in tracing."""
    import torch

    return bool(
        torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or torch._C._meta_in_tls_dispatch_include()
        or torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.PythonDispatcher)
    )
