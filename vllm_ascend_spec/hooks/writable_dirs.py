"""Check before an engine starts that it can write to its folders.

vLLM finds out late, below a traceback: PyTorch compiles parts of the sampler when the first request
asks for logprobs or ``top_k``, and ends the engine if it cannot.
"""

from __future__ import annotations

import getpass
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vllm_ascend_spec.config.engine import EngineOptions
from vllm_ascend_spec.errors import ConfigError

# Bytes that must be free. Engines of examples/zoo write 5 MB of compiled code, plus headers.
LEAST = 16 << 20
# Bytes to write on trial: a quota or a limit on files shows only when something is written.
PROBE = 64 << 10


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder that vLLM or one of its libraries writes to.

    Attributes:
        variable: environment variable that sets its path.
        use: clause that says what is written there; follows "and" in messages.
        path: returns its path.
        is_used: tells whether an engine may write to it.
        is_needed: tells whether an engine fails without it, given its path.
        remedy: what helps apart from choosing another folder.
        without: what happens if an engine goes on without it.
    """

    variable: str
    use: str
    path: Callable[[], Path]
    is_used: Callable[[EngineOptions], bool]
    is_needed: Callable[[EngineOptions, Path], bool]
    remedy: str = ""
    without: str = ""


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
    given = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    return Path(given or Path(tempfile.gettempdir(), f"torchinductor_{user()}"))


def triton_cache() -> Path:
    """Return where Triton keeps kernels."""
    home = os.environ.get("TRITON_HOME") or "~"
    given = os.environ.get("TRITON_CACHE_DIR")
    return Path(given or Path(home, ".triton", "cache")).expanduser()


def user() -> str:
    """Return this user's name, or the user id if it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        return str(os.getuid())


def compiles(engine: EngineOptions) -> bool:
    """Tell whether vLLM compiles the model; PyTorch and Triton then write to vLLM's cache, too."""
    return engine.compiles and not engine.enforce_eager


def compiles_sampler_only(engine: EngineOptions) -> bool:
    """Tell whether PyTorch compiles the sampler and nothing else; not with vllm-ascend."""
    return not compiles(engine) and engine.device is not None and engine.device.family != "ascend"


def has_no_compiled_model(engine: EngineOptions, root: Path) -> bool:
    """Tell whether a model has to be compiled; a cache that exists is only read."""
    return compiles(engine) and not (root / "torch_compile_cache").is_dir()


def is_on_a_cpu(engine: EngineOptions, path: Path) -> bool:
    """Tell whether the device is the CPU, where engines were seen to end without the folder."""
    return engine.device is not None and engine.device.name == "cpu"


def has_triton_only(engine: EngineOptions) -> bool:
    """Tell whether Triton compiles kernels that are not part of a compiled model."""
    return not compiles(engine) and engine.device is not None and engine.device.name != "cpu"


FOLDERS = (
    Folder(
        variable="TMPDIR",
        use="processes and compilers put files there",
        path=temporary,
        is_used=lambda engine: True,
        is_needed=lambda engine, path: True,
    ),
    Folder(
        variable="VLLM_CACHE_ROOT",
        use="vLLM puts compiled models there",
        path=vllm_cache,
        is_used=lambda engine: True,
        is_needed=has_no_compiled_model,
        remedy=", or give --enforce-eager",
        without="what is not there yet is not kept",
    ),
    Folder(
        variable="TORCHINDUCTOR_CACHE_DIR",
        use="PyTorch compiles the sampler there",
        path=inductor_cache,
        is_used=compiles_sampler_only,
        is_needed=is_on_a_cpu,
        without="a request with logprobs or top_k may end it",
    ),
    Folder(
        variable="TRITON_CACHE_DIR",
        use="Triton puts kernels there",
        path=triton_cache,
        is_used=has_triton_only,
        is_needed=lambda engine, path: False,
        without="kernels that are not there yet cannot be compiled",
    ),
)


def check_folders(engine: EngineOptions) -> tuple[str, ...]:
    """Try the folders that an engine will write to.

    Returns:
        A warning for each unusable folder that the engine can do without.

    Raises:
        ConfigError: the engine needs an unusable folder; names the variable that sets it.
    """
    warnings = []
    for folder in FOLDERS:
        if not folder.is_used(engine):
            continue
        path, problem = try_folder(folder)
        if problem is None:
            continue
        if not isinstance(path, Path) or folder.is_needed(engine, path):
            raise ConfigError(
                folder.variable,
                path if path is None else str(path),
                f"cannot be used ({problem}), and {folder.use}; set {folder.variable} to a folder "
                f"with {LEAST >> 20} MB free{folder.remedy}",
            )
        warnings.append(
            f"{folder.variable}: {path} cannot be used ({problem}). The engine goes on without "
            f"it: {folder.without}."
        )
    return tuple(warnings)


def try_folder(folder: Folder) -> tuple[Path | str | None, str | None]:
    """Return a folder's path, if it is known, and what is wrong with it, or None."""
    try:
        path = folder.path()
    except FileNotFoundError:  # Python has found none of its temporary folders writable
        given = os.environ.get(folder.variable)
        return given, "it cannot be written to, nor can /tmp, /var/tmp and the current folder"
    return path, problem_of(path)


def problem_of(path: Path) -> str | None:
    """Return why a folder, which need not exist yet, cannot be written to; None if it can."""
    there = path.absolute()
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    try:
        with tempfile.TemporaryFile(dir=there) as probe:
            probe.write(bytes(PROBE))
            probe.flush()
        disk = os.statvfs(there)
    except OSError as error:
        return error.strerror or str(error)
    free = disk.f_bavail * disk.f_frsize
    # A file system that reports no size does not report its free space either.
    if disk.f_blocks and free < LEAST:
        return f"{free / (1 << 20):.1f} MB are free"
    return None
