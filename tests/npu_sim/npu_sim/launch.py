"""Run a Python function as one op of the simulated device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

from npu_sim.native_parts import native

# Bytes read and written by the launch that was last.
Traffic = Callable[[], tuple[int, int]]


def as_device_op(
    name: str, function: Callable[..., Any], traffic: Traffic | None = None
) -> Callable[..., Any]:
    """Wrap a function so that a call is one device op: counted once, one task on a graph's tape.

    The function gets CPU tensors that share the memory of the NPU tensors that the wrapper was
    called with, and may change them. New CPU tensors that it returns become NPU tensors. A
    replay calls it again with the same memory.

    Args:
        name: Under which it is counted, such as "triton::my_kernel".
        function: Computes with tensors; may take and return tuples, lists and dicts of them.
        traffic: Tells the bytes that the last call of `function` has read and written. Without it
            every argument counts as read, and as written: which of them change is not known.
    """

    @functools.wraps(function)
    def launch(*args: Any, **kwargs: Any) -> Any:
        return _launch(name, function, traffic, args, kwargs)

    return launch


def alias(tensor: Any) -> Any:
    """Give a CPU tensor on the memory of an NPU tensor; anything else as it is."""
    return native().cpu_alias(tensor) if isinstance(tensor, torch.Tensor) else tensor


def _launch(
    name: str, function: Callable[..., Any], traffic: Traffic | None, args: tuple, kwargs: dict
) -> Any:
    """Run, record or replace one call, as the calling thread's mode wants it."""
    core = native()
    mode = core.mode()
    tensors = [leaf for leaf in tree_flatten((args, kwargs))[0] if is_npu(leaf)]
    cpu_args, cpu_kwargs = tree_map(alias, (args, kwargs))
    moved = (sum(core.tensor_bytes(tensor) for tensor in tensors),) * 2
    if mode == core.Mode.UPDATE:
        core.replace(name, *moved, lambda: function(*cpu_args, **cpu_kwargs))
        return None
    core.check_launch(name)
    if mode == core.Mode.CAPTURE:
        for tensor in tensors:
            core.keep(tensor)
    results = function(*cpu_args, **cpu_kwargs)
    moved = traffic() if traffic else moved
    own_results = to_device(results, tensors)
    if mode == core.Mode.EAGER:
        core.count_launch(name, *moved)
    else:
        again = _Again(function, cpu_args, cpu_kwargs, tree_map(alias, own_results))
        core.record(name, *moved, again)
    return own_results


class _Again:
    """Calls a function again, into the results of its first call."""

    def __init__(
        self, function: Callable[..., Any], args: tuple, kwargs: dict, results: Any
    ) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.results = results

    def __call__(self) -> None:
        """Run and copy the results to where the first call's lie."""
        new = tree_flatten(self.function(*self.args, **self.kwargs))[0]
        for into, value in zip(tree_flatten(self.results)[0], new, strict=True):
            if isinstance(into, torch.Tensor) and into.data_ptr() != value.data_ptr():
                into.copy_(value)


def is_npu(value: Any) -> bool:
    """Tell whether a value is a tensor on the simulated NPU."""
    return isinstance(value, torch.Tensor) and value.device.type == "npu"


def to_device(results: Any, tensors: list[torch.Tensor]) -> Any:
    """Turn CPU tensors among results into NPU tensors, on the device of the call's tensors."""
    if not tensors:
        return results
    own = {tensor.data_ptr(): tensor for tensor in tensors}

    def convert(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or is_npu(value):
            return value
        same = own.get(value.data_ptr())
        if same is not None and same.shape == value.shape and same.stride() == value.stride():
            return same
        return native().on_device(value, tensors[0])

    return tree_map(convert, results)
