"""Time an engine's steps before it serves, if it chooses K itself.

Why: the choice of K depends on what steps cost, and vLLM has no hook between the start of an engine
and its first request.
How: the warm-up (timed steps of dummy requests) runs after ``EngineCore.__init__``. A spawned
process loads plugins inside ``__init__``, too late to wrap it; there the warm-up runs before the
process's loop.
Until: never; this is our own feature, hooked in where vLLM has no hook.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from vllm_ascend_spec.patches.patching import Patches

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
    def start_and_warm_up(self: Any, *args: Any, **kwargs: Any) -> None:
        start(self, *args, **kwargs)
        _warm_up(self)

    @wraps(loop)
    def warm_up_and_loop(self: Any) -> None:
        _warm_up(self)
        loop(self)

    _patches.set(EngineCore, "__init__", start_and_warm_up)
    _patches.set(EngineCoreProc, "run_busy_loop", warm_up_and_loop)


def _warm_up(core: Any) -> None:
    from vllm_ascend_spec.control.warmup import profile_steps

    profile_steps(core)
