"""Speculative decoding for vLLM on Ascend NPUs, with CUDA and CPU fall-backs.

Importing this package imports neither torch nor vLLM: vLLM discovers it through entry points,
and ``vllm-ascend-spec info`` has to work where both are missing or broken.
"""

from vllm_ascend_spec.errors import (
    AscendSpecError,
    BackendUnavailableError,
    CheckpointError,
    ConfigError,
    CustomProposerError,
    ExtensionError,
    PlatformError,
    UnguardedScriptError,
    UnsupportedVersionError,
)

__version__ = "0.3.1"

__all__ = [
    "AscendSpecError",
    "BackendUnavailableError",
    "CheckpointError",
    "ConfigError",
    "CustomProposerError",
    "ExtensionError",
    "PlatformError",
    "UnguardedScriptError",
    "UnsupportedVersionError",
    "__version__",
]
