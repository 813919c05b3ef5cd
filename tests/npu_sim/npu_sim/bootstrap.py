"""Turn a process into one with a simulated NPU; called around the import of torch_npu."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

from npu_sim import native_parts

# torch_npu's own kernels that need no CANN: they make tensors and move pointers about. `_to_copy`
# makes a tensor and calls `copy_`.
OWN_ATEN = (
    "empty.memory_format",
    "empty_strided",
    "resize_",
    "set_",
    "set_.source_Storage",
    "set_.source_Storage_storage_offset",
    "set_.source_Tensor",
    "record_stream",
    "_to_copy",
    "is_set_to",
    "_copy_from",
    "_copy_from_and_resize",
    "_pin_memory",
    "is_pinned",
)
OWN_NPU = (
    "super_kernel_scope_begin",
    "super_kernel_scope_end",
    "print_npugraph_tensor",
    "save_npugraph_tensor",
    "empty_with_format",
    "unsafe_empty_with_format",
    "empty_with_swapped_memory",
    "get_storage_size",
    "npu_view_copy",
)
ENVIRONMENT = {
    # torch_npu's compiled functions are not of the type that this cache of torch 2.13 stores.
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
}
# What holds unless the environment says otherwise.
DEFAULTS = {
    # With 1, torch_npu's own default, events are recorded by a thread of its own, somewhat later.
    "TASK_QUEUE_ENABLE": "0",
}
WRONG_OP = "NPU_SIM_WRONG_OP"
WRONG_FACTOR = 1.5
_kept: list = []


def before_torch_npu() -> None:
    """Prepare the process: environment, vLLM's name, the fake CANN."""
    from npu_sim import distribution

    os.environ.update({**DEFAULTS, **os.environ, **ENVIRONMENT})
    # A CANN that is installed after all must not be mixed with the fake one.
    os.environ.pop("ASCEND_HOME_PATH", None)
    distribution.install()
    native_parts.load_fake_cann()


def after_torch_npu() -> None:
    """Replace torch_npu's kernels by the CPU's and by references."""
    from npu_sim import launch, overwritten, references, triton_bridge

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        references.load_all()
        native_parts.native().install_aten(OWN_ATEN)
        for path, place in overwritten.places():
            native_parts.native().tolerate(path, place)
        install_namespace("npu")
        install_namespace("atb")
        triton_bridge.install(launch.alias, launch.as_device_op)


def install_namespace(namespace: str) -> None:
    """Register the references of a namespace, and an error by name for all its other ops."""
    import torch

    from npu_sim.references import registry

    names = [name for name in registry.REFERENCES if name.startswith(f"{namespace}::")]
    library = torch.library.Library(namespace, "IMPL")
    _kept.append(library)
    for name in names:
        # The reference is the op's kernel for the CPU; the NPU's runs that on its own memory.
        kernel = negative_control(name, registry.REFERENCES[name])
        library.impl(name.partition("::")[2], kernel, "CPU")
    native_parts.native().install_namespace(
        namespace,
        [name.partition("::")[2] for name in names],
        [name.partition("::")[2] for name in names if name in registry.HOST_ONLY],
        list(OWN_NPU) if namespace == "npu" else [],
    )


def negative_control(name: str, reference: Callable[..., Any]) -> Callable[..., Any]:
    """Make a reference wrong if `NPU_SIM_WRONG_OP` names its op.

    A test that compares tokens proves something only if a wrong op makes it fail. Where the
    variable is there, be it empty, it is read with each call: copies of a process have their own.
    """
    if WRONG_OP not in os.environ:
        return reference

    def wrong(*args: Any, **kwargs: Any) -> Any:
        result = reference(*args, **kwargs)
        if os.environ.get(WRONG_OP) == name:
            (result[0] if isinstance(result, (tuple, list)) else result).mul_(WRONG_FACTOR)
        return result

    return wrong


def install_custom_ops() -> None:
    """Define vllm-ascend's own ops and register their references."""
    from npu_sim import custom_ops

    if "_C_ascend" not in _installed:
        _installed.add("_C_ascend")
        custom_ops.define()
        install_namespace("_C_ascend")


_installed: set[str] = set()
