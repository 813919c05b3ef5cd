"""Hidden states cannot be copied out of the cache on a CPU.

Why: the connector of hidden states copies into pinned memory
(vllm/distributed/kv_transfer/kv_connector/v1/example_hidden_states_connector.py:
ExampleHiddenStatesConnector._submit_async_write) on every device. Without a driver PyTorch cannot
pin memory, and the engine ends with a RuntimeError.
How: in that module ``torch.empty_like`` does not pin. A CPU needs no pinned memory.
Until: vLLM asks ``is_pin_memory_available``, as it does elsewhere. 0.31 to 0.33 do not.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert


class _Unpinned:
    """PyTorch, except that ``empty_like`` does not pin memory."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    def empty_like(self, *args: Any, pin_memory: bool = False, **kwargs: Any) -> Any:
        """Call PyTorch's ``empty_like`` without pinning."""
        return self._torch.empty_like(*args, **kwargs)


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm.distributed.kv_transfer.kv_connector.v1 import example_hidden_states_connector

    torch = example_hidden_states_connector.torch
    _patches.set(example_hidden_states_connector, "torch", _Unpinned(torch))
