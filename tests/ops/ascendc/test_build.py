"""The build for a real device, as far as it can be checked without CANN.

The host part is compiled against PyTorch's headers and stand-ins for torch-npu's and ACL's with
the declarations it uses; that shows that it is C++, uses PyTorch rightly and agrees with the
kernels' launchers. It does not show that it compiles with the real headers.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import torch

from tests.ops.ascendc.kernels import OPS, SOURCES
from tests.ops.twin.build import COMPILER, INCLUDE, requires_compiler
from vllm_ascend_spec.ops import build_ascendc
from vllm_ascend_spec.ops.ascendc_library import FAMILIES
from vllm_ascend_spec.ops.checksum import checksum_of, damage

DTYPES = ("float32", "bfloat16", "float16")
STAND_INS = {
    "acl/acl.h": """
        #include <cstdint>
        typedef int aclError;
        typedef void* aclrtStream;
        constexpr aclError ACL_SUCCESS = 0;
        enum aclDeviceInfo { ACL_DEVICE_INFO_VECTOR_CORE_NUM };
        extern "C" aclError aclGetDeviceCapability(uint32_t, aclDeviceInfo, int64_t*);
        """,
    "torch_npu/csrc/core/npu/NPUStream.h": """
        namespace c10_npu {
        struct NPUStream { void* stream() const; };
        NPUStream getCurrentNPUStream(signed char device = -1);
        }
        """,
    "torch_npu/csrc/core/npu/NPUGuard.h": """
        #include <c10/core/Device.h>
        namespace c10_npu { struct NPUGuard { explicit NPUGuard(c10::Device); }; }
        """,
    "torch_npu/csrc/framework/OpCommand.h": """
        #include <functional>
        #include <string>
        namespace at_npu { namespace native {
        struct OpCommand {
          OpCommand& Name(const std::string&);
          OpCommand& SetCustomHandler(std::function<int()>);
          void Run();
        };
        } }
        """,
}


def check_syntax(source: Path, *flags: str) -> None:
    command = [COMPILER, "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", *flags]
    run = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@requires_compiler
def test_the_binding_compiles_with_stand_ins(tmp_path: Path) -> None:
    for name, text in STAND_INS.items():
        header = tmp_path / name
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text("#pragma once\n" + text)
    headers = Path(torch.__file__).parent / "include"
    check_syntax(SOURCES / "binding" / "binding.cpp", "-I", str(tmp_path), "-isystem", str(headers))


@requires_compiler
@pytest.mark.parametrize("op", OPS)
def test_launches_pass_what_the_kernels_take(op: str, tmp_path: Path) -> None:
    text = (SOURCES / op / f"{op}.cpp").read_text()
    launch = "kernel<<<tiling->cores, nullptr, stream>>>("
    assert text.count(launch) == 1
    called = text.replace(launch, "static_cast<void>(stream), kernel(")
    folder = str(SOURCES / op)
    copy = tmp_path / f"{op}.cpp"
    copy.write_text(re.sub(r'#include "(\w+\.h)"', rf'#include "{folder}/\1"', called))
    check_syntax(copy, "-I", str(INCLUDE))


@pytest.mark.parametrize("op", OPS)
def test_there_is_a_kernel_for_each_type_and_it_is_built(op: str) -> None:
    text = (SOURCES / op / f"{op}.cpp").read_text()
    kernels = re.findall(r"^SPEC_\w+_KERNEL\((\w+), \w+\)$", text, re.MULTILINE)
    assert kernels == [f"spec_{op}_{dtype}" for dtype in DTYPES]
    assert f"{op}/{op}.cpp" in (SOURCES / "CMakeLists.txt").read_text()


@pytest.fixture
def cann(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make everything be there but CMake; return CANN's folder."""
    monkeypatch.setattr(build_ascendc, "find_package", lambda name: tmp_path / name)
    monkeypatch.setattr(build_ascendc, "BUILT", tmp_path)
    monkeypatch.setattr(build_ascendc, "SOC", tmp_path / "soc.txt")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv(build_ascendc.CANN_VARIABLE, raising=False)
    (tmp_path / "cann").mkdir()
    (tmp_path / "bin").mkdir()
    return tmp_path / "cann"


def install_cmake(cann: Path, script: str) -> Path:
    """Put a stand-in for CMake in place; return the file it writes its arguments to."""
    calls = cann.parent / "calls"
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


def test_other_chips_are_refused(cann: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = error_of(capsys, "ascend310p3")
    assert "ascend310p3" in error
    for family in FAMILIES:
        assert family in error


def test_missing_tools_are_named(
    cann: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "cmake is not installed" in error_of(capsys, "ascend910b1", "--cann", str(cann))
    install_cmake(cann, "exit 0")
    monkeypatch.undo()
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
    assert damage(cann.parent / "lib.so") is None
