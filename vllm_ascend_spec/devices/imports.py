"""Find out why a device's libraries cannot be imported, in one line without a traceback."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys


def why_not(*modules: str) -> str | None:
    """Import modules in order; return the first error, or None."""
    try:
        for module in modules:
            importlib.import_module(module)
    except Exception as error:  # whatever it is, the user has to fix it
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    return None


def why_not_elsewhere(*modules: str) -> str | None:
    """Run :func:`why_not` in a subprocess, as a failed import may crash its process."""
    command = [sys.executable, "-c", f"import {', '.join(modules)}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    # In a chain of errors the cause is printed first.
    found = re.search(r"^\w*(?:Error|Exception): (.+)$", done.stderr, re.MULTILINE)
    return found.group(1) if found else f"status {done.returncode}"
