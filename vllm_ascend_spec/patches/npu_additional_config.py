"""Our section of ``--additional-config`` on the NPU.

Why: vllm-ascend 0.30.0rc2 treats all of ``--additional-config`` as its own and refuses unknown keys
(vllm_ascend/ascend_config.py:AscendConfig), ``ascend_spec`` among them: no engine starts.
How: its config class is built without that key, which stays in place for us.
Until: vllm-ascend accepts keys of other projects, as it does for vLLM-Omni; 0.30.0rc2 is the newest
release.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.config.schema import SECTION
from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if not _patches:
        from vllm_ascend import ascend_config

        _patches.set(ascend_config, "AscendConfig", WithoutOurs(ascend_config.AscendConfig))


class WithoutOurs:
    """Wraps vllm-ascend's config class, because pydantic may replace its ``__init__``.

    Args:
        stock: vllm-ascend's class.
    """

    def __init__(self, stock: Any) -> None:
        self.stock = stock

    def __call__(self, **options: Any) -> Any:
        """Build the config from all options except ours."""
        options.pop(SECTION, None)
        return self.stock(**options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stock, name)
