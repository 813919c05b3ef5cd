"""Speculative decoding for vLLM on Ascend NPUs, with CUDA and CPU fall-backs.

Importing this package imports neither torch nor vLLM: vLLM discovers it through entry points,
and ``vllm-ascend-spec info`` has to work where both are missing or broken.
"""

from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.errors import (
    AscendSpecError,
    BackendUnavailableError,
    CheckpointError,
    ConfigError,
    CustomProposerError,
    ExtensionError,
    FlagsError,
    PlatformError,
    UnguardedScriptError,
    UnsupportedVersionError,
)

if TYPE_CHECKING:
    from vllm import LLM

__version__ = "0.5.0"

__all__ = [
    "LLM",
    "AscendSpecError",
    "BackendUnavailableError",
    "CheckpointError",
    "ConfigError",
    "CustomProposerError",
    "ExtensionError",
    "FlagsError",
    "PlatformError",
    "UnguardedScriptError",
    "UnsupportedVersionError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Import vLLM's ``LLM`` on first use, so that scripts can import it from this package."""
    if name == "LLM":
        from vllm import LLM

        return LLM
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
