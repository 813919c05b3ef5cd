"""What Triton 3.9's interpreter and autotuner do differently from triton-ascend's, put right.

triton-ascend replaces Triton and is of an older version, for which vllm-ascend's kernels are
written.
"""

import functools
from collections.abc import Callable
from typing import Any


def install() -> None:
    """Repair the interpreter and the autotuner, for the whole process."""
    _compare_to_bits()
    _forgive_unknown_names()
    _take_the_first_configuration()


def _compare_to_bits() -> None:
    """Let comparisons give bits (int1), as Triton's language says.

    The interpreter's results keep the dtype of what was compared. A scalar that is spread over a
    block then becomes a block of floats, which `&` refuses.
    """
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def to_bits(compare: Callable[..., TensorHandle]) -> Callable[..., TensorHandle]:
        @functools.wraps(compare)
        def compared(self: Any, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
            return TensorHandle(compare(self, lhs, rhs).data.astype(bool), tl.int1)

        return compared

    for name, method in list(vars(InterpreterBuilder).items()):
        if name.startswith(("create_icmp", "create_fcmp")):
            setattr(InterpreterBuilder, name, to_bits(method))


def _forgive_unknown_names() -> None:
    """Let a tuned kernel name keys that are no arguments of it; older versions ignore them."""
    from triton.runtime.autotuner import Autotuner

    create = Autotuner.__init__

    @functools.wraps(create)
    def lenient(
        self: Any, fn: Any, arg_names: Any, configs: Any, key: Any, *args: Any, **kwargs: Any
    ) -> None:
        create(self, fn, arg_names, configs, [k for k in key if k in arg_names], *args, **kwargs)

    Autotuner.__init__ = lenient


def _take_the_first_configuration() -> None:
    """Let all configurations of a kernel take the same time, so that the first one is chosen."""
    from triton.runtime.autotuner import Autotuner

    Autotuner._bench = lambda self, *args, config, **meta: [0.0, 0.0, 0.0]
