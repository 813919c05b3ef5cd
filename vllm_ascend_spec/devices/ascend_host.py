"""Check that everything an NPU needs is installed. Each problem is one message with its remedy.

Importing this module loads nothing heavy; only :func:`import_problem` does.
"""

from __future__ import annotations

import functools
from importlib import metadata

from vllm_ascend_spec.devices import imports
from vllm_ascend_spec.devices.plugins import (
    VLLM_ASCEND,
    allowed_plugins,
    vllm_ascend_plugins,
)
from vllm_ascend_spec.versions import (
    SUPPORTED_VLLM,
    in_words,
    installed_vllm,
    is_minor,
    is_same_minor,
)

# Minor versions; each needs the same minor version of vLLM.
SUPPORTED = SUPPORTED_VLLM["npu"]
# 0.30 has only release candidates, which pip installs only if one is named.
INSTALL = f"pip install '{VLLM_ASCEND}==0.30.0rc2', or the stable '{VLLM_ASCEND}==0.23.*'"
LEAVE_OUT = "or leave ascend_spec out of VLLM_PLUGINS"
CANN = (
    "load the environment of a CANN that this torch_npu was built for "
    "(source .../ascend-toolkit/set_env.sh), "
    "or set VLLM_ASCEND_SPEC_DEVICE=cpu with a CPU build of vLLM"
)
PLUGINS_LEFT_OUT = (
    "VLLM_PLUGINS leaves out {names}, without which vllm-ascend is not whole; "
    "`vllm-ascend-spec env` prints the line to set."
)


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def host_problem() -> str | None:
    """Return what is missing or incompatible, without importing anything; None if nothing."""
    ascend = installed_version(VLLM_ASCEND)
    if ascend is None:
        return f"An Ascend NPU needs {VLLM_ASCEND}, which is not installed. Remedy: {INSTALL}."
    if not any(is_minor(ascend, minor) for minor in SUPPORTED):
        return (
            f"{VLLM_ASCEND} {ascend} is installed; vllm-ascend-spec supports "
            f"{in_words(SUPPORTED)}. Remedy: {INSTALL}, {LEAVE_OUT}."
        )
    vllm = installed_vllm()
    if vllm is not None and not is_same_minor(vllm[1], ascend):
        return (
            f"{VLLM_ASCEND} {ascend} does not belong to {vllm[0]} {vllm[1]}. "
            "Remedy: install versions of both whose first two numbers are the same."
        )
    torch_npu, torch = installed_version("torch-npu"), installed_version("torch")
    if torch_npu is None:
        return (
            "An Ascend NPU needs torch_npu, which is not installed. "
            f"Remedy: install the torch-npu of your torch {torch}."
        )
    if torch is not None and not is_same_minor(torch, torch_npu):
        return (
            f"torch_npu {torch_npu} does not belong to torch {torch}. "
            "Remedy: install versions of both whose first two numbers are the same."
        )
    return None


def host_warning() -> str | None:
    """Return a warning if ``VLLM_PLUGINS`` leaves out plugins of vllm-ascend, else None."""
    allowed = allowed_plugins()
    left_out = [name for name in vllm_ascend_plugins() if allowed and name not in allowed]
    return PLUGINS_LEFT_OUT.format(names=", ".join(left_out)) if left_out else None


@functools.cache
def import_problem() -> str | None:
    """Return why torch_npu, which loads CANN's libraries, cannot be imported; None if it can."""
    return _told(imports.why_not("torch_npu"))


def import_problem_elsewhere() -> str | None:
    """Run :func:`import_problem` in a subprocess: a torch that cannot load torch_npu crashes."""
    return _told(imports.why_not_elsewhere("torch", "torch_npu"))


def _told(reason: str | None) -> str | None:
    return reason and f"torch_npu cannot be imported: {reason}. Remedy: {CANN}."
