"""Why a device's libraries cannot be imported, in one line without the trace."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys


def why_not(*modules: str) -> str | None:
    """Import modules in order; return what is in the way, or None."""
    try:
        for module in modules:
            importlib.import_module(module)
    except Exception as error:  # whatever it is, the person has to remove it
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    return None


def why_not_elsewhere(*modules: str) -> str | None:
    """Return the same, found out in a process of its own: one that cannot load them may die."""
    command = [sys.executable, "-c", f"import {', '.join(modules)}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    # The cause comes first where one error led to another.
    found = re.search(r"^\w*(?:Error|Exception): (.+)$", done.stderr, re.MULTILINE)
    return found.group(1) if found else f"status {done.returncode}"
