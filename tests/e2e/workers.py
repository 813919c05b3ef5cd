"""Workers of engines that are copies of one process that has imported vLLM.

vLLM starts each worker from nothing, and importing vLLM takes it longer than all else that it does
with a small model. Here ``forkserver`` imports once for all workers of a process of pytest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.context import ForkServerContext
from typing import Any

import pytest

IMPORTED = (
    "vllm.v1.engine.core",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.worker.cpu_worker",
)
# Those that have taken the function by its name.
STARTERS = (
    "vllm.v1.engine.coordinator",
    "vllm.v1.engine.utils",
    "vllm.v1.executor.multiproc_executor",
)


def run_in(
    environment: Mapping[str, str], target: Callable[..., None], *args: Any, **kwargs: Any
) -> None:
    """Run a worker in the environment of the process that starts it, not of the one copied."""
    os.environ.clear()
    os.environ.update(environment)
    target(*args, **kwargs)


class Copies(ForkServerContext):
    """Starts processes as copies of one that has imported vLLM."""

    def Process(self, *args: Any, target: Callable[..., None], **kwargs: Any) -> Any:  # type: ignore[override]  # noqa: N802
        """Return a process that is not yet started; the arguments are those of ``Process``."""
        given = (dict(os.environ), target, *kwargs.pop("args", ()))
        return super().Process(*args, target=run_in, args=given, **kwargs)


@contextmanager
def copied() -> Iterator[None]:
    """Let vLLM start its workers so."""
    context = Copies()
    context.set_forkserver_preload(list(IMPORTED))
    with pytest.MonkeyPatch.context() as patch:
        for name in STARTERS:
            patch.setattr(f"{name}.get_mp_context", lambda: context)
        yield
