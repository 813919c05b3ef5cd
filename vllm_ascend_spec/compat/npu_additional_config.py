"""Our section of ``--additional-config`` on the NPU.

Why: vllm-ascend 0.30.0rc2 takes all of ``--additional-config`` for its own and refuses keys that it
does not know (vllm_ascend/ascend_config.py:AscendConfig), ``ascend_spec`` among them: no engine
starts.
How: its config class is built without that key, which stays where it is for us.
Until: vllm-ascend lets other projects have keys, as it does for vLLM-Omni's; 0.30.0rc2 is the
newest release.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.compat.patching import Patches
from vllm_ascend_spec.config.schema import SECTION

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the mend once."""
    if not _patches:
        from vllm_ascend import ascend_config

        _patches.set(ascend_config, "AscendConfig", WithoutOurs(ascend_config.AscendConfig))


class WithoutOurs:
    """Stands for vllm-ascend's config class, whose ``__init__`` pydantic replaces when it likes.

    Args:
        stock: the class.
    """

    def __init__(self, stock: Any) -> None:
        self.stock = stock

    def __call__(self, **options: Any) -> Any:
        """Build the config of all options but ours."""
        options.pop(SECTION, None)
        return self.stock(**options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stock, name)
