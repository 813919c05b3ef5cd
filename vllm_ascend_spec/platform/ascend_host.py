"""Is everything there that an NPU needs? Each trouble is one message with its remedy.

Importing it loads nothing heavy; :func:`import_problem` alone does.
"""

from __future__ import annotations

import functools
import importlib
import re
import subprocess
import sys
from importlib import metadata

from vllm_ascend_spec.versions import is_minor, is_same_minor

SUPPORTED_VLLM_ASCEND = "0.30"
VLLM_ASCEND = "vllm-ascend"
INSTALL = f"pip install '{VLLM_ASCEND}=={SUPPORTED_VLLM_ASCEND}.*'"
LEAVE_OUT = "or leave ascend_spec out of VLLM_PLUGINS"
CANN = (
    "load the environment of a CANN that this torch_npu was built for "
    "(source .../ascend-toolkit/set_env.sh), "
    "or set VLLM_ASCEND_SPEC_DEVICE=cpu with a CPU build of vLLM"
)


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def problem() -> str | None:
    """Return what is missing or does not fit, by what is installed alone; None if nothing."""
    ascend = installed_version(VLLM_ASCEND)
    if ascend is None:
        return f"An Ascend NPU needs {VLLM_ASCEND}, which is not installed. Remedy: {INSTALL}."
    if not is_minor(ascend, SUPPORTED_VLLM_ASCEND):
        return (
            f"{VLLM_ASCEND} {ascend} is installed; vllm-ascend-spec supports "
            f"{SUPPORTED_VLLM_ASCEND}.x. Remedy: {INSTALL}, {LEAVE_OUT}."
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


@functools.cache
def import_problem() -> str | None:
    """Return why torch_npu cannot be imported, or None; what it needs of CANN is found out so."""
    try:
        importlib.import_module("torch_npu")
    except Exception as error:  # whatever it is, the remedy is the same
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        return _cannot_be_imported(reason)
    return None


def import_problem_elsewhere() -> str | None:
    """Return the same, found out in a process of its own: a torch that cannot load it dies."""
    code = "import torch, torch_npu"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    # The cause comes first where one error led to another.
    found = re.search(r"^\w*(?:Error|Exception): (.+)$", done.stderr, re.MULTILINE)
    return _cannot_be_imported(found.group(1) if found else f"status {done.returncode}")


def _cannot_be_imported(reason: str) -> str:
    return f"torch_npu cannot be imported: {reason}. Remedy: {CANN}."
