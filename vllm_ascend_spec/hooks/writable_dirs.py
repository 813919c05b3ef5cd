"""Check before an engine starts the folders that it cannot do without.

vLLM finds out late, below a traceback: PyTorch compiles parts of the sampler when the first request
asks for logprobs or ``top_k``, and ends the engine if it cannot.
"""

from __future__ import annotations

import getpass
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vllm_ascend_spec.collect.folder import size_of
from vllm_ascend_spec.config.collect import MAX_BYTES, OPTION, collecting_of
from vllm_ascend_spec.config.engine import EngineOptions
from vllm_ascend_spec.errors import ConfigError

# Bytes that must be free. Engines of examples/zoo write 5 MB of compiled code, plus headers.
LEAST = 16 << 20
# Bytes to write on trial: a quota or a limit on files shows only when something is written.
PROBE = 64 << 10


def check_folders(engine: EngineOptions) -> None:
    """Try the folders that an engine will write to and fails without.

    Raises:
        ConfigError: one cannot be used; names the variable that sets it.
    """
    _check("TMPDIR", temporary, "processes and compilers put files there")
    if engine.compiles and not engine.enforce_eager:
        # PyTorch and Triton then write to vLLM's cache, too. A cache that exists is only read.
        if not (vllm_cache() / "torch_compile_cache").is_dir():
            remedy = ", or give --enforce-eager"
            _check("VLLM_CACHE_ROOT", vllm_cache, "vLLM puts compiled models there", remedy)
    elif engine.device is not None and engine.device.name == "cpu":
        _check("TORCHINDUCTOR_CACHE_DIR", inductor_cache, "PyTorch compiles the sampler there")


def check_collect_folder(additional_config: Any) -> None:
    """Try the folder that collected requests go to, if there is one.

    Args:
        additional_config: ``--additional-config``, checked.

    Raises:
        ConfigError: it cannot be used, or its disk has no room for what may be collected.
    """
    collecting = collecting_of(additional_config)
    if collecting is None:
        return
    problem, found = problem_of(collecting.folder), 0
    try:
        found = size_of(collecting.folder)
    except OSError as error:
        problem = problem or error.strerror
    if problem is not None:
        raise ConfigError(
            OPTION,
            str(collecting.folder),
            f"cannot be used ({problem}); valid: a folder on this machine that can be written to",
        )
    free, missing = free_at(collecting.folder), collecting.max_bytes - found
    if free is not None and missing > free:
        problem = f"{missing:,} more bytes may be collected, and the disk has {free:,} free"
        raise ConfigError(MAX_BYTES, collecting.max_bytes, f"{problem}; valid: less, or more room")


def _check(variable: str, find: Callable[[], Path], use: str, remedy: str = "") -> None:
    try:
        path = str(find())
        problem = problem_of(Path(path))
    except FileNotFoundError:  # Python has found none of its temporary folders writable
        path = os.environ.get(variable, "")
        problem = "neither it nor /tmp, /var/tmp and the current folder can be written to"
    if problem is not None:
        raise ConfigError(
            variable,
            path or None,
            f"cannot be used ({problem}), and {use}; set {variable} to a folder with "
            f"{LEAST >> 20} MB free{remedy}",
        )


def temporary() -> Path:
    """Return the folder for temporary files; like Python, compilers skip a read-only TMPDIR."""
    given = os.environ.get("TMPDIR")
    return Path(given if given and os.access(given, os.W_OK | os.X_OK) else tempfile.gettempdir())


def vllm_cache() -> Path:
    """Return the folder of vLLM's cache."""
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("VLLM_CACHE_ROOT") or Path(caches, "vllm")).expanduser()


def inductor_cache() -> Path:
    """Return where PyTorch puts compiled code that is not part of a model."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        user = str(os.getuid())
    given = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    return Path(given or Path(tempfile.gettempdir(), f"torchinductor_{user}"))


def problem_of(path: Path) -> str | None:
    """Return why a folder, which need not exist yet, cannot be written to; None if it can."""
    try:
        with tempfile.TemporaryFile(dir=existing(path)) as probe:
            probe.write(bytes(PROBE))
            probe.flush()
        free = free_at(path)
    except OSError as error:
        return error.strerror or str(error)
    if free is not None and free < LEAST:
        return f"{free / (1 << 20):.1f} MB are free"
    return None


def existing(path: Path) -> Path:
    """Return a path, or the nearest folder above it that exists."""
    there = path.absolute()
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    return there


def free_at(path: Path) -> int | None:
    """Return the bytes that are free where a path is or would be; None if that is not known.

    Raises:
        OSError: the disk refuses.
    """
    disk = os.statvfs(existing(path))
    # A file system that reports no size does not report its free space either.
    return disk.f_bavail * disk.f_frsize if disk.f_blocks else None
