"""Optional: g++ checks the kernels' types against the headers of a CANN toolkit.

``VLLM_ASCEND_SPEC_TOOLKIT`` names the toolkit's folder, what ``ASCEND_HOME_PATH`` is elsewhere. Its
headers for debugging on a CPU declare the device compiler's own functions. Nothing is linked or
run, and nothing of CANN is part of this repository.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ops.ascendc.kernels import OPS, SOURCES
from tests.ops.emulator.build import COMPILER, INCLUDE, requires_compiler

VARIABLE = "VLLM_ASCEND_SPEC_TOOLKIT"
# A vector core of Atlas A2 and A3, as the toolkit's own CPU debugging defines it.
DEFINES = (
    "ASCENDC_CPU_DEBUG=1",
    "__CCE_KT_TEST__=1",
    "__CCE_AICORE__=220",
    "__DAV_C220__",
    "__NPU_ARCH__=2201",
)
# By version: 8.1 has tikcpp/tikcfw, from 8.5 on there is asc.
ROOTS = ("compiler", "tools", "ascendc_devkit", "{machine}-linux", ".")
FOLDERS = {
    "tikcpp/tikcfw": ("", "interface", "impl"),
    "asc": (
        "",
        *("include", "include/basic_api", "include/adv_api", "include/utils"),
        *("impl", "impl/basic_api", "impl/utils"),
    ),
}
CPU_DEBUGGING = "tools/tikicpulib/lib/include"


def include_folders(toolkit: Path) -> Iterator[Path]:
    """Yield the folders of a toolkit that have AscendC's headers."""
    for root in ROOTS:
        for name, parts in FOLDERS.items():
            folder = toolkit / root.format(machine=platform.machine()) / name
            yield from (folder / part for part in parts if (folder / part).is_dir())
    yield toolkit / CPU_DEBUGGING
    yield toolkit / f"{platform.machine()}-linux" / "include"
    yield toolkit / "include"


def problems(source: Path, toolkit: Path) -> str:
    """Return what g++ finds wrong with a kernel's source; empty if nothing."""
    flags = [f"-D{define}" for define in DEFINES]
    for folder in include_folders(toolkit):
        flags += ["-isystem", str(folder)]
    command = [COMPILER, "-std=c++17", "-fsyntax-only", *flags, str(source)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return run.stderr if run.returncode else ""


@pytest.mark.skipif(
    VARIABLE not in os.environ, reason=f"needs CANN's toolkit: {VARIABLE}=its folder"
)
@requires_compiler
@pytest.mark.parametrize("op", OPS)
def test_the_toolkits_headers_take_the_kernels(op: str) -> None:
    toolkit = Path(os.environ[VARIABLE])
    assert any((folder / "kernel_operator.h").is_file() for folder in include_folders(toolkit)), (
        f"{VARIABLE}={toolkit}: no kernel_operator.h in it; valid: the folder of a CANN toolkit"
    )
    assert problems(SOURCES / op / f"{op}.cpp", toolkit) == ""


@requires_compiler
@pytest.mark.parametrize("layout", ["compiler/tikcpp/tikcfw", "{machine}-linux/asc/include"])
def test_a_toolkits_headers_are_found_and_a_wrong_call_is_noticed(
    tmp_path: Path, layout: str
) -> None:
    """The emulator's headers in a toolkit's place; then one function takes something else."""
    folder = tmp_path / layout.format(machine=platform.machine())
    folder.mkdir(parents=True)
    header = folder / "kernel_operator.h"
    header.write_text(f'#include "{INCLUDE}/kernel_operator.h"\n')
    source = SOURCES / "grammar_mask" / "grammar_mask.cpp"
    assert problems(source, tmp_path) == ""
    header.write_text(f'#include "{INCLUDE}/kernel_operator.h"\n#define SetGlobalBuffer Renamed\n')
    assert "Renamed" in problems(source, tmp_path)
