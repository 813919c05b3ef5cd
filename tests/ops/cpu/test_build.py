"""Installing builds the library; where it cannot, the installation goes on and says why.

Uses setuptools' hooks as pip does, in copies of the sources (tests/wheel.py).
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

from tests.wheel import NO_COMPILER, call_hook, copy_source, unpack

ROOT = Path(__file__).parents[3]
LIBRARY, PROBLEM = "vllm_ascend_spec/ops/_cpu.abi3.so", "vllm_ascend_spec/ops/_cpu.problem.txt"
CHECKSUM = f"{LIBRARY}.sha256"

# Which backend runs, after three ops' worth of calls, with every line that is logged.
USE = """
import logging
logging.basicConfig(format="LOGGED %(message)s")
import torch
from vllm_ascend_spec.ops import OPS, cpu_library, verify_greedy
zero = torch.zeros(1, dtype=torch.int32)
for _ in range(3):
    verify_greedy(torch.eye(2, 5), zero, zero + 1, 1)
    backends = [op.backend(None, torch.device("cpu")).__module__ for op in OPS]
print(cpu_library.__file__, *{name.rsplit(".")[-1] for name in backends})
"""

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="the C++ backend is for Linux"),
    pytest.mark.skipif(not importlib.util.find_spec("setuptools"), reason="needs setuptools"),
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Copy what is needed to build, and nothing that was built."""
    return copy_source(tmp_path / "source")


def use(installed: Path) -> tuple[str, list[str]]:
    """Use an unpacked wheel in a new process; return its backend and what it logged."""
    done = subprocess.run(
        [sys.executable, "-c", USE],
        env={**os.environ, "PYTHONPATH": str(installed)},
        cwd=installed,
        capture_output=True,
        text=True,
        check=True,
    )
    *_, where, backend = done.stdout.split()
    assert Path(where).is_relative_to(installed)
    return backend, re.findall(r"^LOGGED (.*)$", done.stderr, re.MULTILINE)


def test_compiler_may_use_no_more_than_the_processor_is_asked_for() -> None:
    from ops.build import X86_LEVELS

    dispatch = (ROOT / "ops" / "cpu" / "dispatch.cpp").read_text()
    asked = set(re.findall(r'__builtin_cpu_supports\("(\w+)"\)', dispatch))
    used = {flag.removeprefix("-m") for flags in X86_LEVELS.values() for flag in flags}
    assert {name for name in used if "=" not in name} == asked
    assert not any(flag.startswith("-march") for flags in X86_LEVELS.values() for flag in flags)


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
def test_wheel_from_the_source_archive_has_the_library(source: Path) -> None:
    archive = call_hook("build_sdist", source)
    with tarfile.open(archive) as contents:
        contents.extractall(source.parent / "unpacked", filter="data")
    (unpacked,) = (source.parent / "unpacked").iterdir()
    built = ("*.so", "*.sha256", "*.problem.txt")
    assert not [path for pattern in built for path in unpacked.rglob(pattern)]
    sources = {path.name for path in (ROOT / "ops" / "cpu").iterdir()}
    assert {path.name for path in (unpacked / "ops" / "cpu").iterdir()} == sources

    wheel = call_hook("build_wheel", unpacked)
    assert re.search(r"-cp310-abi3-linux_\w+\.whl$", wheel.name)
    installed = unpack(wheel)
    assert (installed / LIBRARY).is_file()
    assert not (installed / PROBLEM).exists()
    assert not list(installed.glob("ops"))
    assert_checksum_is_right(installed)
    assert use(installed) == ("cpu", [])
    library = installed / LIBRARY
    library.write_bytes(library.read_bytes()[: library.stat().st_size // 2])
    backend, (line,) = use(installed)
    assert backend == "reference"
    assert "_cpu.abi3.so is damaged" in line


def assert_checksum_is_right(folder: Path) -> None:
    digest = hashlib.sha256((folder / LIBRARY).read_bytes()).hexdigest()
    assert (folder / CHECKSUM).read_text() == f"{digest}  _cpu.abi3.so\n"


def test_without_a_compiler_the_reference_is_used(source: Path) -> None:
    installed = unpack(call_hook("build_wheel", source, **NO_COMPILER))
    assert not (installed / LIBRARY).exists()
    assert not (installed / CHECKSUM).exists()
    problem = (installed / PROBLEM).read_text()
    assert "no-such-compiler" in problem
    assert "remedy: install a C++17 compiler" in problem
    backend, logged = use(installed)
    assert backend == "reference"
    assert logged == [f"the C++ backend was not built: {problem.strip()}; the next backend is used"]


def test_without_torch_the_reason_names_the_remedy(source: Path) -> None:
    home = source.parent / "bare"
    venv.create(home, with_pip=False, symlinks=True)
    # An environment with setuptools alone, like pip's when it builds.
    setuptools = Path(importlib.util.find_spec("setuptools").origin).parents[1]
    only = source.parent / "only"
    only.mkdir()
    for pattern in ("setuptools", "setuptools-*", "_distutils_hack", "pkg_resources"):
        for path in setuptools.glob(pattern):
            (only / path.name).symlink_to(path)
    python = str(home / "bin" / "python")
    installed = unpack(call_hook("build_wheel", source, python=python, PYTHONPATH=str(only)))
    assert not (installed / LIBRARY).exists()
    problem = (installed / PROBLEM).read_text()
    assert problem.startswith("torch 2.10 or later was not there")
    assert "remedy: install torch first" in problem
    assert use(installed)[0] == "reference"


def test_editable_installation_leaves_its_reason_in_the_sources(source: Path) -> None:
    (source / LIBRARY).write_bytes(b"of an earlier build")
    (source / CHECKSUM).write_text("of an earlier build")
    call_hook("build_editable", source, **NO_COMPILER)
    assert not (source / LIBRARY).exists()
    assert not (source / CHECKSUM).exists()
    assert "no-such-compiler" in (source / PROBLEM).read_text()
    # The next one that succeeds, or fails otherwise, does not keep it.
    shutil.rmtree(source.parent / "build_editable")
    call_hook("build_editable", source, CC="other", CXX="other")
    assert "no-such-compiler" not in (source / PROBLEM).read_text()


def test_editable_installation_leaves_the_checksum_in_the_sources(source: Path) -> None:
    (source / CHECKSUM).write_text("of an earlier build")
    (source / PROBLEM).write_text("of an earlier build")
    build_nothing = (
        "import ops.build; "
        "ops.build.BuildNative._build = lambda self, ext, target: target.write_bytes(b'built')"
    )
    call_hook("build_editable", source, before=build_nothing)
    assert (source / LIBRARY).read_bytes() == b"built"
    assert_checksum_is_right(source)
    assert not (source / PROBLEM).exists()
