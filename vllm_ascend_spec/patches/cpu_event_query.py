"""Events on a CPU cannot be asked whether they are over.

Why: on a CPU vLLM replaces ``torch.cuda.Event`` by a class
(vllm/v1/worker/cpu/shm.py:_EventPlaceholder) that has no ``query``. The connector of hidden states
calls it after each request
(vllm/distributed/kv_transfer/kv_connector/v1/example_hidden_states_connector.py:
ExampleHiddenStatesConnector.get_finished), and the engine ends with an AttributeError.
How: a ``query`` that returns True: on a CPU all work before an event is done when the event is
made.
Until: vLLM adds it, as it has for its fake stream in the same file. 0.31 to 0.33 do not.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm.v1.worker.cpu.shm import _EventPlaceholder

    stock = _EventPlaceholder.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        stock(self, *args, **kwargs)
        self.query = lambda: True

    _patches.set(_EventPlaceholder, "__init__", __init__)
