"""Our section of ``--additional-config`` on the NPU.

Why: vllm-ascend 0.30.0rc2 takes all of ``--additional-config`` for its own and refuses keys that it
does not know (ascend_config.py:1906), ``ascend_spec`` among them: no engine starts.
How: its config class is built without that key, which stays where it is for us.
Until: vllm-ascend lets other projects have keys, as it does for vLLM-Omni's.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.compat.patching import Patches
from vllm_ascend_spec.config.schema import SECTION

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the mend once."""
    if _patches:
        return
    from vllm_ascend.ascend_config import AscendConfig

    stock = AscendConfig.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.pop(SECTION, None)
        stock(self, *args, **kwargs)

    _patches.set(AscendConfig, "__init__", init)
