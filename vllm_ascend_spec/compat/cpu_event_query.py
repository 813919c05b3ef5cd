"""Events on a CPU cannot be asked whether they are over.

Why: vLLM puts a class in the place of ``torch.cuda.Event`` on a CPU
(vllm/v1/worker/cpu/shm.py:_EventPlaceholder) that has no ``query``. The connector of hidden states
asks it after each request
(vllm/distributed/kv_transfer/kv_connector/v1/example_hidden_states_connector.py:
ExampleHiddenStatesConnector.get_finished), and the engine ends with an AttributeError.
How: a ``query`` that says yes: on a CPU everything before an event is over when it is made.
Until: vLLM adds it, as its stand-in for a stream beside it has one. 0.31 to 0.33 do not.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.compat.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the mend once."""
    if _patches:
        return
    from vllm.v1.worker.cpu.shm import _EventPlaceholder

    stock = _EventPlaceholder.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        stock(self, *args, **kwargs)
        self.query = lambda: True

    _patches.set(_EventPlaceholder, "__init__", __init__)
