"""The command that builds for a real device: what it refuses, and what it asks CMake for.

``tests/ascend/test_binding.py`` builds and runs the result, with torch_npu's headers, without CANN.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from tests.ops.ascendc.kernels import OPS, SOURCES
from vllm_ascend_spec.ops import build_ascendc
from vllm_ascend_spec.ops.ascendc_library import _family
from vllm_ascend_spec.ops.checksum import checksum_of, file_problem

DTYPES = ("float32", "bfloat16", "float16")
FIND_PACKAGE = build_ascendc.find_package


@pytest.mark.parametrize("op", OPS)
def test_there_is_a_kernel_for_each_type_and_it_is_built(op: str) -> None:
    text = (SOURCES / op / f"{op}.cpp").read_text()
    kernels = re.findall(r"^SPEC_\w+_KERNEL\((\w+), \w+\)$", text, re.MULTILINE)
    assert kernels == [f"spec_{op}_{dtype}" for dtype in DTYPES]
    assert f"{op}/{op}.cpp" in (SOURCES / "CMakeLists.txt").read_text()


@pytest.fixture
def cann(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make everything be there but CMake and make; return CANN's folder."""
    monkeypatch.setattr(build_ascendc, "find_package", lambda name: tmp_path / name)
    monkeypatch.setattr(build_ascendc, "BUILT", tmp_path)
    monkeypatch.setattr(build_ascendc, "SOC", tmp_path / "soc.txt")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv(build_ascendc.CANN_VARIABLE, raising=False)
    (tmp_path / "cann").mkdir()
    (tmp_path / "bin").mkdir()
    return tmp_path / "cann"


def install_cmake(cann: Path, script: str) -> Path:
    """Put fakes for CMake and make in place; return the file with CMake's arguments."""
    calls = cann.parent / "calls"
    (cann.parent / "bin" / "make").symlink_to("/bin/true")
    cmake = cann.parent / "bin" / "cmake"
    cmake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {calls}\n{script}\n')
    cmake.chmod(0o755)
    return calls


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert build_ascendc.main(["--soc", *arguments]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_without_cann_there_is_one_clear_error(
    cann: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = error_of(capsys, "ascend910b1")
    assert "ASCEND_HOME_PATH is not set" in error
    assert "set_env.sh" in error
    assert "is not a folder" in error_of(capsys, "ascend910b1", "--cann", str(cann / "nowhere"))


@pytest.mark.parametrize(
    "soc",
    [
        "ascend310p3",
        "ascend910b",  # to CANN a chip of the first Ascend 910
        "Ascend910B",
        "ascend910_93",
        "ascend910b9",
        "ascend910b1 ",
        "ascend910prob",
        "",
        "x" * 1000,
    ],
)
def test_what_is_no_chip_of_ours_is_refused(
    cann: Path, capsys: pytest.CaptureFixture[str], soc: str
) -> None:
    install_cmake(cann, "exit 0")
    error = error_of(capsys, soc, "--cann", str(cann))
    assert f"--soc {soc[:40]}: " in error
    for valid in build_ascendc.SOCS:
        assert valid in error
    assert len(error) <= 300


def test_every_valid_chip_is_of_a_family_with_kernels() -> None:
    assert len(set(build_ascendc.SOCS)) == len(build_ascendc.SOCS)
    for soc in build_ascendc.SOCS:
        assert build_ascendc.check_soc(soc.upper()) == soc
        assert _family(soc)


def test_missing_tools_are_named(
    cann: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "cmake is not installed" in error_of(capsys, "ascend910b1", "--cann", str(cann))
    install_cmake(cann, "exit 0")
    make = cann.parent / "bin" / "make"
    make.rename(cann / "make")
    assert "make is not installed" in error_of(capsys, "ascend910b1", "--cann", str(cann))
    (cann / "make").rename(make)
    monkeypatch.setattr(build_ascendc, "find_package", FIND_PACKAGE)
    assert "torch_npu is not installed" in error_of(capsys, "ascend910b1", "--cann", str(cann))
    monkeypatch.setattr(build_ascendc, "SOURCES", cann)
    assert "checkout" in error_of(capsys, "ascend910b1", "--cann", str(cann))


def test_a_failing_command_is_named(cann: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = install_cmake(cann, '[ "$1" != --build ]')
    assert "--build" in error_of(capsys, "ascend910b1", "--cann", str(cann))
    assert len(calls.read_text().splitlines()) == 2
    assert not (cann.parent / "soc.txt").exists()


def test_a_build_configures_builds_installs_and_notes_the_chip(
    cann: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = install_cmake(cann, f"[ $1 = --install ] && printf built > {cann.parent}/lib.so; true")
    monkeypatch.setenv(build_ascendc.CANN_VARIABLE, str(cann))
    assert build_ascendc.main(["--soc", "Ascend910_9391", "--jobs", "3"]) == 0
    configure, build, install = calls.read_text().splitlines()
    for value in (
        f"-S {SOURCES}",
        "-G Unix Makefiles",
        "-DSOC_VERSION=ascend910_9391",
        f"-DASCEND_HOME_PATH={cann}",
        f"-DTORCH_NPU_PATH={cann.parent / 'torch_npu'}",
        f"-DTORCH_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
    ):
        assert value in configure
    assert "--parallel 3" in build
    assert install.startswith("--install")
    assert (cann.parent / "soc.txt").read_text() == "ascend910_9391\n"
    assert checksum_of(cann.parent / "lib.so").is_file()
    assert file_problem(cann.parent / "lib.so") is None
