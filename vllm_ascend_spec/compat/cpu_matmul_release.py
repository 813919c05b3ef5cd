"""Let go of an ended engine's matrix multiplications while another engine is compiled.

Why: on a CPU a linear layer owns a oneDNN handler, and frees it by its pointer, which lies in a
tensor (vllm/_custom_ops.py:CPUDNNLGEMMHandler). The garbage collector calls that at any time. While
PyTorch traces, operations go to a fake mode, which refuses that tensor: the handler is never freed,
and the message about it repeats the tensor, which asks again, until the stack ends. Processes with
a second engine crashed.
How: the handler is freed with the modes of the moment set aside.
Until: vLLM keeps the pointer as a number, and frees by it outside of modes. 0.31 to 0.33 do not.
"""

from __future__ import annotations

import sys
from typing import Any

from vllm_ascend_spec.compat.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the mend once."""
    if _patches:
        return
    import torch
    from torch.utils._python_dispatch import _disable_current_modes
    from vllm._custom_ops import CPUDNNLGEMMHandler

    stock = CPUDNNLGEMMHandler.__del__

    def __del__(self: Any) -> None:  # noqa: N807
        if sys.is_finalizing():  # no mode is left, and what asks for them cannot be imported
            stock(self)
            return
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            stock(self)

    _patches.set(CPUDNNLGEMMHandler, "__del__", __del__)
