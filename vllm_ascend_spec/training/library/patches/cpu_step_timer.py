"""The trainer's timer waits for an accelerator where there is none.

Why: speculators/train/trainer.py:_StepTimer calls ``torch.accelerator.synchronize``, which raises
on a CPU.
How: it reads the clock.
Until: speculators asks first whether there is an accelerator.
"""

from __future__ import annotations

import time
from typing import Any

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from speculators.train.trainer import _StepTimer

    def mark(self: Any, name: str) -> None:
        self.mark_value(name, time.perf_counter())

    def now(self: Any) -> float | None:
        return time.perf_counter() if self.enabled else None

    _patches.set(_StepTimer, "mark", mark)
    _patches.set(_StepTimer, "now", now)
