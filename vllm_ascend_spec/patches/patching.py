"""Replace attributes reversibly: every patch has a test that fails without the patch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MISSING = object()


class Launchable:
    """A function in place of a Triton kernel, which is launched by ``kernel[grid](...)``.

    Args:
        func: function that takes the kernel's arguments by name.
    """

    def __init__(self, func: Callable[..., None]) -> None:
        self.func = func

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return self.func


class Patches:
    """Attributes that one patch replaced, in order."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []

    def __bool__(self) -> bool:
        return bool(self._undo)

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set ``owner.name`` and remember its old value."""
        self._undo.append((owner, name, vars(owner).get(name, _MISSING)))
        setattr(owner, name, value)

    def set_kernel(self, dispatcher: Any, kernel: Any) -> None:
        """Give a ``VllmTritonJitKernel`` another kernel and forget the old one's argument names."""
        self.set(dispatcher, "kernel", kernel)
        vars(dispatcher).pop("_kernel_arg_names", None)

    def revert(self) -> None:
        """Put everything back, last change first."""
        while self._undo:
            owner, name, value = self._undo.pop()
            if value is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
            if name == "kernel":
                vars(owner).pop("_kernel_arg_names", None)
