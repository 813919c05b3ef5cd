"""Memory with a page on either side that no one may touch."""

from __future__ import annotations

import ctypes
import mmap

import torch

PAGE = mmap.PAGESIZE
# No mapping, no access; libc's own numbers.
PROT_NONE = 0

_libc = ctypes.CDLL(None, use_errno=True)


def span_of(tensor: torch.Tensor) -> int:
    """Return the bytes from a tensor's first element to the end of its last."""
    if tensor.numel() == 0:
        return 0
    last = sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return (last + 1) * tensor.element_size()


class Fenced:
    """A copy of a tensor between two pages that end the process when they are touched.

    One end of the copy lies directly at its fence: the last, or the first if ``at_start``. Other
    processes forked from this one write into the same memory.
    """

    def __init__(self, tensor: torch.Tensor, *, at_start: bool) -> None:
        self.tensor = tensor
        self.size = span_of(tensor)
        inner = max(-(-self.size // PAGE), 1) * PAGE
        self.map = mmap.mmap(-1, inner + 2 * PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        for fence in (base, base + PAGE + inner):
            if _libc.mprotect(ctypes.c_void_p(fence), PAGE, PROT_NONE) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")
        self.address = base + PAGE + (0 if at_start else inner - self.size)
        ctypes.memmove(self.address, tensor.data_ptr(), self.size)

    def copy_back(self) -> None:
        """Copy what was written to the tensor itself."""
        ctypes.memmove(self.tensor.data_ptr(), self.address, self.size)
