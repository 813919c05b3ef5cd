"""Folders that cannot be written to are found before an engine starts."""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.zoo import TARGET
from vllm_ascend_spec.config.engine import EngineOptions, is_compiled
from vllm_ascend_spec.devices.registry import BUILT_IN as DEVICES
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks import preflight, writable_dirs

VARIABLES = ("TMPDIR", "VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR")
NOBODY = 65534


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Return ``mount(options)``: a small disk of its own, in a folder."""
    mounted: list[Path] = []

    def new(options: str) -> Path:
        folder = tmp_path / f"disk{len(mounted)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no disk can be mounted here: {error}")
        mounted.append(folder)
        return folder

    yield new
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def blocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Return ``blocked(variable)``: all folders can be used but the one that a variable sets."""

    def block(variable: str) -> Path:
        for name in VARIABLES:
            monkeypatch.setenv(name, str(tmp_path / name))
            (tmp_path / name).mkdir()
        folder = tmp_path / "a file"
        folder.touch()
        monkeypatch.setenv(variable, str(folder / "cache"))
        return folder / "cache"

    return block


def engine(device: str = "cpu", **options: Any) -> EngineOptions:
    return EngineOptions(device=DEVICES[device], **options)


def test_a_folder_that_can_be_written_to_need_not_be_there(tmp_path: Path) -> None:
    assert writable_dirs.problem_of(tmp_path / "a" / "b") is None
    assert list(tmp_path.iterdir()) == [], "nothing is made, nothing is left"


def test_what_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    assert writable_dirs.problem_of(tmp_path / "file" / "cache") == os.strerror(errno.ENOTDIR)
    assert writable_dirs.problem_of(tmp_path / "link") == os.strerror(errno.ENOENT)


def test_a_read_only_disk(mount: Callable[[str], Path]) -> None:
    assert writable_dirs.problem_of(mount("ro") / "cache") == os.strerror(errno.EROFS)


def test_a_full_disk(mount: Callable[[str], Path]) -> None:
    assert writable_dirs.problem_of(mount("size=32k") / "cache") == os.strerror(errno.ENOSPC)
    assert writable_dirs.problem_of(mount("size=1m") / "cache") == "1.0 MB are free"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_what_shows_as_something_is_written(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(data: bytes) -> None:
        raise OSError(code, os.strerror(code))

    class Probe:
        def __enter__(self) -> SimpleNamespace:
            return SimpleNamespace(write=write)

        def __exit__(self, *_: object) -> None:
            return None

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda dir: Probe())
    assert writable_dirs.problem_of(tmp_path) == os.strerror(code)


def test_a_disk_of_no_known_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = SimpleNamespace(f_blocks=0, f_bavail=0, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda path: unknown)
    assert writable_dirs.problem_of(tmp_path) is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_another_persons_folder(tmp_path: Path) -> None:
    """What root is never told."""
    tmp_path.chmod(0o700)
    if (child := os.fork()) == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        os._exit(writable_dirs.problem_of(tmp_path / "cache") != os.strerror(errno.EACCES))
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    ("variable", "device", "options"),
    [
        ("VLLM_CACHE_ROOT", "cpu", {}),
        ("VLLM_CACHE_ROOT", "npu", {}),
        ("TORCHINDUCTOR_CACHE_DIR", "cpu", {"enforce_eager": True}),
    ],
)
def test_what_an_engine_needs(
    variable: str, device: str, options: dict[str, Any], blocked: Callable[[str], Path]
) -> None:
    folder = blocked(variable)
    with pytest.raises(ConfigError) as raised:
        writable_dirs.check_folders(engine(device, **options))
    message = str(raised.value)
    assert message.startswith(f"{variable}='{folder}"[:40])
    assert "cannot be used (Not a directory), and" in message
    assert f"set {variable} to a folder" in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("variable", "device", "options"),
    [
        ("TORCHINDUCTOR_CACHE_DIR", "cpu", {}),
        ("TORCHINDUCTOR_CACHE_DIR", "npu", {"enforce_eager": True}),
        ("TORCHINDUCTOR_CACHE_DIR", "cuda", {"compiles": False}),
        ("VLLM_CACHE_ROOT", "cpu", {"enforce_eager": True}),
        ("VLLM_CACHE_ROOT", "npu", {"compiles": False}),
        ("TMPDIR", "cpu", {}),
    ],
)
def test_what_an_engine_does_not_need(
    variable: str, device: str, options: dict[str, Any], blocked: Callable[[str], Path]
) -> None:
    blocked(variable)
    writable_dirs.check_folders(engine(device, **options))


def test_compiled_models_that_are_there_are_read(
    mount: Callable[[str], Path], blocked: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an image that brings them along."""
    blocked("TORCHINDUCTOR_CACHE_DIR")
    full = mount("size=64k")
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(full))
    with pytest.raises(ConfigError, match="VLLM_CACHE_ROOT="):
        writable_dirs.check_folders(engine())
    (full / "torch_compile_cache").mkdir()
    writable_dirs.check_folders(engine())


def test_folders_of_another_machine_are_left_alone(blocked: Callable[[str], Path]) -> None:
    """Where `check` is asked of a device that is not here."""
    blocked("VLLM_CACHE_ROOT")
    with pytest.raises(ConfigError, match="VLLM_CACHE_ROOT="):
        preflight.resolve_engine(TARGET, None, {}, engine())
    gone = replace(DEVICES["npu"], find=lambda: False)
    assert preflight.resolve_engine(TARGET, None, {}, EngineOptions(device=gone)) is None


def test_a_full_folder_for_temporary_files(
    mount: Callable[[str], Path], blocked: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python turns to another one; a compiler does not."""
    blocked("TORCHINDUCTOR_CACHE_DIR")
    monkeypatch.setenv("TMPDIR", str(mount("size=32k")))
    with pytest.raises(ConfigError, match=r"^TMPDIR=.*No space left on device"):
        writable_dirs.check_folders(engine())


def test_no_folder_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def gettempdir() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setenv("TMPDIR", "/gone")
    monkeypatch.setattr(tempfile, "gettempdir", gettempdir)
    with pytest.raises(ConfigError, match=r"^TMPDIR='/gone': .*/var/tmp"):
        writable_dirs.check_folders(engine())


def test_where_the_folders_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """As vLLM and PyTorch find them."""
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir
    from vllm import envs

    for name in VARIABLES[1:]:
        monkeypatch.delenv(name, raising=False)
    assert str(writable_dirs.inductor_cache()) == default_cache_dir()
    for cache in ("/caches", "~/caches"):
        monkeypatch.setenv("XDG_CACHE_HOME", cache)
        assert str(writable_dirs.vllm_cache()) == envs.environment_variables["VLLM_CACHE_ROOT"]()
    monkeypatch.setenv("VLLM_CACHE_ROOT", "~/elsewhere")
    assert str(writable_dirs.vllm_cache()) == envs.environment_variables["VLLM_CACHE_ROOT"]()


@pytest.mark.parametrize(
    ("compilation", "level", "expected"),
    [
        (None, 2, True),
        (None, 0, False),
        ({"mode": 0}, 2, False),
        ({"mode": "none"}, 2, False),
        ({"mode": 3}, 0, True),
        ({"cudagraph_mode": "NONE"}, 2, True),
    ],
)
def test_is_compiled(compilation: Any, level: int, expected: bool) -> None:
    assert is_compiled(compilation, level) is expected
