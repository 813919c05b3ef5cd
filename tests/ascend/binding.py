"""The library that a device gets, built without CANN.

``ops/ascendc/CMakeLists.txt`` and ``binding.cpp`` are used as they are, with torch_npu's own
headers and libraries. CANN's toolkit is replaced by ``tests/ascend/toolkit/``, whose launchers run
the kernels under the emulator, and its runtime by the simulator's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from npu_sim import native_parts

from tests.ops.ascendc.kernels import kernels
from vllm_ascend_spec.ops import ascendc_library, build_ascendc

TOOLKIT = Path(__file__).parent / "toolkit"
# Read by the launchers, see toolkit/fake.h.
LAUNCH, EMULATOR = "VLLM_ASCEND_SPEC_TEST_LAUNCH", "VLLM_ASCEND_SPEC_TEST_EMULATOR"
UNREGISTERED = "unregistered"
# This environment's own CMake first.
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def make_toolkit(folder: Path) -> Path:
    """Write what the build looks for in CANN's folder; return it."""
    script = folder / "tools/tikcpp/ascendc_kernel_cmake/ascendc.cmake"
    script.parent.mkdir(parents=True)
    script.write_text(f"include({TOOLKIT}/ascendc.cmake)\n")
    (folder / "include").mkdir()
    (folder / "lib64").symlink_to(native_parts.folder())
    return folder


def build(folder: Path) -> None:
    """Build the library into a folder, as the command does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_ascendc, "BUILT", folder)
        patch.setattr(build_ascendc, "SOC", folder / "soc.txt")
        patch.setenv("PATH", PATH)
        patch.setenv("CXXFLAGS", "-Wall -Wextra -Werror")
        patch.setenv("CMAKE_GENERATOR", "Ninja")  # as some people have it
        cann = make_toolkit(folder / "cann")
        assert build_ascendc.main(["--soc", "ascend910b3", "--cann", str(cann)]) == 0


def use(folder: Path, patch: pytest.MonkeyPatch, launch: str = "") -> None:
    """Let the package find the library of a folder, and its launchers do as told.

    Args:
        folder: where it was built.
        patch: undoes it.
        launch: an error code, or UNREGISTERED; empty to run the kernels.
    """
    patch.setattr(ascendc_library, "LIBRARY", folder / ascendc_library.LIBRARY.name)
    patch.setattr(ascendc_library, "SOC", folder / "soc.txt")
    patch.delenv(ascendc_library.EMULATOR_VARIABLE, raising=False)
    patch.setenv(EMULATOR, str(kernels()))
    patch.setenv(LAUNCH, launch)
    ascendc_library.library_problem.cache_clear()
