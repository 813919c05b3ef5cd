"""Hand what the worker says of each step's graph to our metrics.

Why: vLLM's statistics of graphs reach the front end, and go to a table in the log alone. Loggers of
other packages are called by the asynchronous engine only
(vllm/v1/engine/async_llm.py:AsyncLLM.__init__).
How: ``StatLoggerManager.record``, which both engines call, counts them first.
Until: vLLM hands its statistics to loggers of other packages in ``LLM``, too.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.compat.patching import Patches
from vllm_ascend_spec.metrics.graph_steps import count_step

_patches = Patches()


def revert() -> None:
    """Undo the hook."""
    _patches.revert()


def apply() -> None:
    """Install the hook once."""
    if _patches:
        return
    from vllm.v1.metrics.loggers import StatLoggerManager

    stock = StatLoggerManager.record

    def record(self: Any, scheduler_stats: Any, *args: Any, **kwargs: Any) -> Any:
        if scheduler_stats is not None:
            engine = kwargs.get("engine_idx") or 0
            count_step(scheduler_stats.cudagraph_stats, engine)
        return stock(self, scheduler_stats, *args, **kwargs)

    _patches.set(StatLoggerManager, "record", record)
