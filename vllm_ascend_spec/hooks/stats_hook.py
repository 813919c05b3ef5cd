"""Pass the per-step reports of worker and scheduler to our metrics.

Why: vLLM's graph statistics reach the front end, but only go to a table in the log. Only the
asynchronous engine calls loggers of other packages
(vllm/v1/engine/async_llm.py:AsyncLLM.__init__).
How: ``StatLoggerManager.record``, which both engines call, counts them first. Then vLLM gets its
own text back, so its table stays the same.
Until: vLLM passes its statistics to loggers of other packages in ``LLM``, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vllm_ascend_spec.metrics.step_metrics import CountedStep, count_step
from vllm_ascend_spec.patches.patching import Patches
from vllm_ascend_spec.step_report import StepReport
from vllm_ascend_spec.upstream.draft_counts import by_position

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
        if scheduler_stats is not None and scheduler_stats.cudagraph_stats is not None:
            engine = kwargs.get("engine_idx") or 0
            scheduler_stats.cudagraph_stats = count(
                scheduler_stats.cudagraph_stats,
                engine,
                getattr(scheduler_stats, "spec_decoding_stats", None),
            )
        return stock(self, scheduler_stats, *args, **kwargs)

    _patches.set(StatLoggerManager, "record", record)


def count(stat: Any, engine: int, positions: Any = None) -> Any:
    """Count a step, and return vLLM's own part of its statistics; None if there is none.

    Args:
        stat: a ``CUDAGraphStat`` with our report in the place of its graph mode.
        engine: the engine's number.
        positions: the ``SpecDecodingStats`` of the step; None without drafts.
    """
    report = StepReport.parse(stat.runtime_mode)
    counts = () if positions is None else tuple(by_position(positions))
    count_step(CountedStep(report, stat.num_unpadded_tokens, counts), engine)
    # Without a graph mode it is from a worker without graphs.
    return replace(stat, runtime_mode=report.graph) if report.graph else None
