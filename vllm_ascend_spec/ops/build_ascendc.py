"""Build the AscendC kernels: ``python -m vllm_ascend_spec.ops.build_ascendc --soc ascend910b1``.

It needs a checkout (the sources are not in the wheel), CANN's toolkit, torch, torch-npu, CMake and
make, and leaves the libraries in ``vllm_ascend_spec/ops/_ascendc``. It does not need an NPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from vllm_ascend_spec.ops.ascendc_library import BUILT, LIBRARY, SOC
from vllm_ascend_spec.ops.checksum import write_checksum

SOURCES = Path(__file__).parents[2] / "ops" / "ascendc"
CANN_VARIABLE = "ASCEND_HOME_PATH"
# Names as CANN's build spells them; chips of one family run each other's kernels. CANN takes a bare
# "ascend910b" for a chip of the first Ascend 910.
SOCS = (
    *(f"ascend910b{variant}" for variant in ("1", "2", "2c", "3", "4", "4-1")),
    *(f"ascend910_93{variant}" for variant in ("62", "72", "81", "82", "91", "92")),
)
# CANN's scripts read files that only this generator writes.
GENERATOR = "Unix Makefiles"
TOOLS = ("cmake", "make")


class CannotBuildError(Exception):
    """The build cannot run; the message says in one line what is missing and the remedy."""


def find_cann(named: str | None) -> Path:
    """Return CANN's folder.

    Raises:
        CannotBuildError: it is not there.
    """
    path = named or os.environ.get(CANN_VARIABLE)
    if not path:
        raise CannotBuildError(
            f"CANN was not found: {CANN_VARIABLE} is not set; source the toolkit's set_env.sh, or "
            "pass --cann"
        )
    if not Path(path).is_dir():
        raise CannotBuildError(f"CANN was not found: {path} is not a folder")
    return Path(path)


def find_package(name: str) -> Path:
    """Return the folder of an installed package, without importing it.

    Raises:
        CannotBuildError: it is not installed.
    """
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise CannotBuildError(f"{name} is not installed here; install the extra 'npu' first")
    return Path(spec.origin).parent


def check_soc(soc: str) -> str:
    """Return the SoC's name as CANN's build spells it.

    Raises:
        CannotBuildError: the kernels do not support it, or the name is not that of one chip.
    """
    if soc.lower() not in SOCS:
        raise CannotBuildError(
            f"--soc {soc[:40]}: no kernels for that name; valid (npu-smi info tells it): "
            f"{', '.join(SOCS)}"
        )
    return soc.lower()


def require_tools() -> None:
    """Raise unless the build tools are installed.

    Raises:
        CannotBuildError: one is not installed.
    """
    for tool in TOOLS:
        if shutil.which(tool) is None:
            raise CannotBuildError(f"{tool} is not installed")


def configuration(soc: str, cann: Path) -> list[str]:
    """Return CMake's arguments."""
    import torch

    values = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_INSTALL_PREFIX": BUILT,
        "SOC_VERSION": soc,
        "ASCEND_HOME_PATH": cann,
        "TORCH_PATH": find_package("torch"),
        "TORCH_NPU_PATH": find_package("torch_npu"),
        "TORCH_CXX11_ABI": int(torch.compiled_with_cxx11_abi()),
    }
    return ["-G", GENERATOR, *(f"-D{name}={value}" for name, value in values.items())]


def build(soc: str, cann: str | None, jobs: int) -> None:
    """Build and install the libraries.

    Raises:
        CannotBuildError: something is missing, or a command failed.
    """
    name, home = check_soc(soc), find_cann(cann)
    if not (SOURCES / "CMakeLists.txt").is_file():
        raise CannotBuildError(f"the sources are not in {SOURCES}; run this in a checkout")
    require_tools()
    with tempfile.TemporaryDirectory() as folder:
        for command in (
            ["cmake", "-S", str(SOURCES), "-B", folder, *configuration(name, home)],
            ["cmake", "--build", folder, "--parallel", str(jobs)],
            ["cmake", "--install", folder],
        ):
            if subprocess.run(command, check=False).returncode != 0:
                raise CannotBuildError(f"this failed, see above: {' '.join(command)}")
    for library in BUILT.glob("*.so"):
        write_checksum(library)
    SOC.write_text(name + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="build_ascendc", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--soc", required=True, help="the chip, e.g. ascend910b1 or ascend910_9391")
    parser.add_argument("--cann", help=f"CANN's folder; default: ${CANN_VARIABLE}")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at once")
    options = parser.parse_args(arguments)
    try:
        build(options.soc, options.cann, options.jobs)
    except CannotBuildError as error:
        sys.stderr.write(f"build_ascendc: {error}\n")
        return 1
    sys.stdout.write(f"built {LIBRARY}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
