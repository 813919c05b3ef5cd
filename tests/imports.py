"""What importing a module pulls in, found out in a process of its own."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("torch", "vllm", "transformers", "numpy")


def heavy_imports_of(module: str) -> list[str]:
    """Return the heavy packages that importing ``module`` imports."""
    code = (
        f"import sys, {module}\n"
        f"sys.stdout.write(' '.join(m for m in {HEAVY!r} if m in sys.modules))"
    )
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
