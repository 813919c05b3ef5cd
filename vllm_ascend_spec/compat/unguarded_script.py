"""One line for a script that starts an engine outside ``if __name__ == "__main__":``.

Why: vLLM spawns its engine's process, and a spawned process imports the script again. A call of
``LLM(...)`` at the script's top level then runs there too, and fails below two long tracebacks.
How: vLLM gets the context of each process that it starts from ``get_mp_context``, which calls
``_maybe_force_spawn`` first (vllm/utils/system_utils.py:_maybe_force_spawn). There we look for the
mark that Python's multiprocessing itself refuses by, and raise before it does. Our error is a
RuntimeError like Python's: a script that catches that one still works. Uncaught, it is printed
without its traceback.
Until: vLLM says it in one line itself. 0.31 to 0.33 do not.
"""

from __future__ import annotations

import functools
import multiprocessing.process
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType

from vllm_ascend_spec.compat.patching import Patches
from vllm_ascend_spec.errors import UnguardedScriptError

# The name under which a spawned process imports the script.
SCRIPT = "__mp_main__"
LONGEST_NAME = 80

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
        f"{place(frame)}LLM(...) runs again where the engine's process imports this script; "
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
