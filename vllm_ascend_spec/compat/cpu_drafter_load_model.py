"""``CPUModelRunner.load_model`` of vLLM 0.30.0 with a drafter that has no weights.

Why: it calls ``self.drafter.load_model`` unconditionally (v1/worker/cpu_model_runner.py:136-138);
``custom_class`` proposers need not have that method, and ``GPUModelRunner`` does check.
How: a drafter without it gets one that does nothing, before the stock method runs.
Until: the CPU runner checks with ``hasattr`` as the GPU runner does.
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
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    stock = CPUModelRunner.load_model

    def load_model(self: Any, load_dummy_weights: bool = False) -> None:
        drafter = getattr(self, "drafter", None)
        if drafter is not None and not hasattr(drafter, "load_model"):
            drafter.load_model = lambda *args, **kwargs: None
        stock(self, load_dummy_weights)

    _patches.set(CPUModelRunner, "load_model", load_model)
