"""Let a script start an engine outside ``if __name__ == "__main__":``, as guides have it.

Why: vLLM spawns its engine's process, and a spawned process imports the script again. A call of
``LLM(...)`` at the script's top level then runs there too, and fails below two long tracebacks.
How: Python tells a process that it spawns which script to import
(``multiprocessing.spawn.get_preparation_data``). vLLM's own processes need nothing from a script
that starts the engine at its top level and could not import it, so they are not told of it. Where
such a call is not detected, for example on another thread, the script is imported. For each process
that it starts, vLLM gets the context from ``get_mp_context``, which calls ``_maybe_force_spawn``
first (vllm/utils/system_utils.py:_maybe_force_spawn). There we check the flag by which Python's
multiprocessing refuses such a start, and raise before Python does. Our error is a RuntimeError like
Python's, so a script that catches that one still works. Uncaught, it is printed without its
traceback.
Until: vLLM starts such scripts, or explains the problem in one line itself. 0.31 to 0.33 do
neither.
"""

from __future__ import annotations

import ast
import functools
import multiprocessing.process
import multiprocessing.spawn
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from vllm_ascend_spec.errors import UnguardedScriptError
from vllm_ascend_spec.patches.patching import Patches

# The name under which a spawned process imports the script.
SCRIPT = "__mp_main__"
LONGEST_NAME = 80
# vLLM's own processes (vllm/v1/engine/utils.py, vllm/v1/executor/multiproc_executor.py and
# vllm/v1/engine/coordinator.py).
PROCESSES = ("EngineCore", "VllmWorker", "VLLM_DP_Coordinator")
# The keys that tell a spawned process which script to import.
TOLD = ("init_main_from_path", "init_main_from_name")

_patches = Patches()


def revert() -> None:
    """Undo the hook."""
    _patches.revert()


def apply() -> None:
    """Install the hook once."""
    if _patches:
        return
    from vllm import envs
    from vllm.utils import system_utils

    stock = system_utils._maybe_force_spawn

    @functools.wraps(stock)
    def _maybe_force_spawn() -> None:
        stock()
        if envs.VLLM_WORKER_MULTIPROC_METHOD == "spawn" and script_is_imported():
            refuse(sys._getframe())

    _patches.set(system_utils, "_maybe_force_spawn", _maybe_force_spawn)
    spawn = multiprocessing.spawn
    _patches.set(spawn, "get_preparation_data", telling_less(spawn.get_preparation_data))


def telling_less(stock: Callable[[str], dict[str, Any]]) -> Callable[[str], dict[str, Any]]:
    """Wrap Python's function to not tell vLLM's processes about an unguarded script."""

    @functools.wraps(stock)
    def get_preparation_data(name: str) -> dict[str, Any]:
        data = stock(name)
        if name.startswith(PROCESSES) and is_unguarded(sys._getframe()):
            data = {key: value for key, value in data.items() if key not in TOLD}
        return data

    return get_preparation_data


def is_unguarded(frame: FrameType | None) -> bool:
    """Tell whether a call comes from the script's top level, outside of a guard.

    Args:
        frame: the innermost frame of the call.
    """
    main = vars(sys.modules["__main__"])
    while frame is not None and (frame.f_globals is not main or frame.f_code.co_name != "<module>"):
        frame = frame.f_back
    if frame is None:
        return False
    try:
        script = ast.parse(Path(frame.f_code.co_filename).read_bytes())
    except (OSError, SyntaxError, ValueError):  # typed interactively, or changed since
        return False
    line = frame.f_lineno
    running = (part for part in script.body if part.lineno <= line <= (part.end_lineno or line))
    return not any(isinstance(part, ast.If) and _asks_for_name(part.test) for part in running)


def _asks_for_name(test: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(test))


def script_is_imported() -> bool:
    """Tell whether this is a spawned process that is still importing the script."""
    return getattr(multiprocessing.process.current_process(), "_inheriting", False)


def refuse(frame: FrameType | None) -> None:
    """Raise the error that names the line, and have it printed without a traceback.

    Args:
        frame: the innermost frame of the call.

    Raises:
        UnguardedScriptError: always.
    """
    sys.excepthook = _without_traceback(sys.excepthook)
    raise UnguardedScriptError(
        f"{place(frame)}LLM(...) runs again when the engine's process imports this script; "
        'put it under `if __name__ == "__main__":`'
    )


def place(frame: FrameType | None) -> str:
    """Return ``"FILE, line N: "`` of the script's top level, or "" where no frame is the script's.

    Args:
        frame: the innermost frame of the call.
    """
    found = ""
    while frame is not None:
        if frame.f_globals.get("__name__") == SCRIPT:
            name = Path(frame.f_code.co_filename).name[-LONGEST_NAME:]
            found = f"{name}, line {frame.f_lineno}: "
        frame = frame.f_back
    return found


Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def _without_traceback(stock: Hook) -> Hook:
    def excepthook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if isinstance(error, UnguardedScriptError):
            sys.stderr.write(f"vllm-ascend-spec: error: {error}\n")
        else:
            stock(kind, error, trace)

    return excepthook
