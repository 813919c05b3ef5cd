"""Let an engine in which K is chosen time its steps before it serves.

Why: what steps cost decides about K, and vLLM has no hook between the start of an engine and its
first request.
How: ``EngineCore.__init__`` is followed by the rehearsal. A process that was spawned loads plugins
in the midst of that, where it is too late; there the loop of the process is preceded by it.
Until: never; this is our own feature, hooked in where vLLM has no hook.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from vllm_ascend_spec.compat.patching import Patches

_patches = Patches()


def revert() -> None:
    """Undo the hook."""
    _patches.revert()


def apply() -> None:
    """Install the hook once."""
    if _patches:
        return
    from vllm.v1.engine.core import EngineCore, EngineCoreProc

    start, loop = EngineCore.__init__, EngineCoreProc.run_busy_loop

    @wraps(start)
    def start_and_rehearse(self: Any, *args: Any, **kwargs: Any) -> None:
        start(self, *args, **kwargs)
        _rehearse(self)

    @wraps(loop)
    def rehearse_and_loop(self: Any) -> None:
        _rehearse(self)
        loop(self)

    _patches.set(EngineCore, "__init__", start_and_rehearse)
    _patches.set(EngineCoreProc, "run_busy_loop", rehearse_and_loop)


def _rehearse(core: Any) -> None:
    from vllm_ascend_spec.control.rehearsal import rehearse

    rehearse(core)
