"""Generate what CANN's build generates for each kernel: a launcher, and its header.

Usage: ``launchers.py COMPILER INCLUDE FOLDER SOURCE…``. As CANN's does, it preprocesses the sources
and reads the kernels' names and parameters from the text.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

KERNEL = re.compile(r'extern\s+"C"\s+void\s+(spec_\w+_(float32|bfloat16|float16))\(([^)]*)\)')
DTYPES = {"float32": 0, "bfloat16": 1, "float16": 2}
HEADER = """#pragma once
#include <acl/acl_base.h>
#ifndef ACLRT_LAUNCH_KERNEL
#define ACLRT_LAUNCH_KERNEL(kernel) aclrtlaunch_##kernel
#endif
extern "C" uint32_t {declaration};
"""
LAUNCHER = """#include "aclrtlaunch_{name}.h"
extern "C" uint32_t {declaration} {{
  (void)stream;
  return fake::launch({dtype}, cores, {arguments});
}}
"""


class Kernel(NamedTuple):
    """A kernel's name, type of logits, and parameters as type and name."""

    name: str
    dtype: int
    parameters: list[tuple[str, str]]

    def declaration(self) -> str:
        """Return the launcher's: global memory is ``void*``, sizes keep their types."""
        rest = [
            f"{'void*' if kind.endswith('*') else kind} {name}" for kind, name in self.parameters
        ]
        listed = ", ".join(["uint32_t cores", "aclrtStream stream", *rest])
        return f"aclrtlaunch_{self.name}({listed})"


def kernels(compiler: str, include: str, source: str) -> list[Kernel]:
    """Return the kernels that a source defines."""
    command = [compiler, "-std=c++17", "-E", "-P", "-I", include, source]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = []
    for name, dtype, listed in KERNEL.findall(text):
        pairs = [tuple(one.split()) for one in listed.split(",")]
        found.append(Kernel(name, DTYPES[dtype], [(kind, name) for kind, name in pairs]))
    return found


def main(compiler: str, include: str, folder: str, *sources: str) -> None:
    """Write the headers and ``launchers.cpp`` into a folder."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    made = ['#include "fake.h"\n']
    for kernel in [one for source in sources for one in kernels(compiler, include, source)]:
        declaration = kernel.declaration()
        header = Path(folder, f"aclrtlaunch_{kernel.name}.h")
        header.write_text(HEADER.format(declaration=declaration))
        arguments = ", ".join(name for _, name in kernel.parameters)
        made.append(
            LAUNCHER.format(
                name=kernel.name, declaration=declaration, dtype=kernel.dtype, arguments=arguments
            )
        )
    Path(folder, "launchers.cpp").write_text("".join(made))


if __name__ == "__main__":
    main(*sys.argv[1:])
