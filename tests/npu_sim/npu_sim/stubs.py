"""Find out what torch_npu wants from CANN beyond what the fake runtime has, and write stubs.

torch_npu's libraries are asked for their undefined symbols. What neither PyTorch, nor torch_npu,
nor the system, nor the fake runtime defines must come from CANN. Each such symbol becomes a stub
that fails and says its name, so that no list of symbols has to be kept.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

# Names that PyTorch's wheels and the compiler leave undefined in every library.
COMPILER_PREFIXES = ("_ITM_", "__gmon_start__", "__cxa_", "Py", "_Py")


def symbols(library: Path, kind: str) -> set[str]:
    """List the dynamic symbols of a library.

    Args:
        library: A shared library.
        kind: "defined" or "undefined". Weak and versioned symbols (libc's) are no undefined ones.
    """
    listing = subprocess.run(
        ["nm", "--dynamic", f"--{kind}-only", "--without-symbol-versions", str(library)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    rows = [line.split() for line in listing.splitlines()]
    if kind == "undefined":
        return {row[-1] for row in rows if row[-2] == "U"}
    return {row[-1] for row in rows}


def loaded_by(libraries: Iterable[Path]) -> set[str]:
    """Name the libraries that these ask the dynamic linker for."""
    names = set()
    for library in libraries:
        listing = subprocess.run(
            ["readelf", "--dynamic", "--wide", str(library)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for line in listing.splitlines():
            if "(NEEDED)" in line:
                names.add(line.split("[")[1].rstrip("]"))
    return names


def missing(wanting: Iterable[Path], having: Iterable[Path]) -> list[str]:
    """List what some libraries want and none of the others define.

    Args:
        wanting: torch_npu's libraries.
        having: The fake runtime, PyTorch's and the system's libraries.
    """
    wanting = list(wanting)
    wanted = set().union(*(symbols(library, "undefined") for library in wanting))
    defined = set().union(*(symbols(library, "defined") for library in [*wanting, *having]))
    return sorted(name for name in wanted - defined if not name.startswith(COMPILER_PREFIXES))


def stub_source(names: Iterable[str]) -> str:
    """Write C++ that defines each name as a function that fails and says its name."""
    lines = ['extern "C" int npu_sim_not_simulated(const char* name);']
    for number, name in enumerate(names):
        lines.append(
            f'extern "C" __attribute__((visibility("default"))) int stub{number}() asm("{name}");'
            f'\nint stub{number}() {{ return npu_sim_not_simulated("{name}"); }}'
        )
    return "\n".join(lines) + "\n"
