"""A checkpoint is read onto a GPU where there is none.

Why: speculators/utils/util.py:get_current_device returns ``cuda:0`` without an accelerator, and
speculators/train/checkpointer.py:SingleGPUCheckpointer reads weights and optimizer there.
How: the checkpointer gets ``cpu``.
Until: speculators returns it.
"""

from __future__ import annotations

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from speculators.train import checkpointer

    _patches.set(checkpointer, "get_current_device", lambda: "cpu")
