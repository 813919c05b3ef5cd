"""Build, look into and end the engines of benchmarks that run in this process."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.config.schema import SECTION

# Set before vLLM is imported, which reads them once.
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "OMP_NUM_THREADS": "1",
}


def prepare_environment() -> None:
    """Set the variables that engines in one process need, unless they are already set."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def build_engine(
    model: str,
    spec: Mapping[str, Any] | None,
    *,
    most_requests: int,
    section: Mapping[str, Any] | None,
    compiled: bool,
    counts: bool = False,
    others: Mapping[str, Any] | None = None,
) -> Any:
    """Return an ``LLM`` with the settings of the benchmarks that run in one process.

    Args:
        model: the target.
        spec: ``speculative_config``; None for no speculation.
        most_requests: largest number of requests in a batch.
        section: our options.
        compiled: whether to use torch.compile.
        counts: whether vLLM's metrics are kept.
        others: further arguments of ``LLM``, which override the benchmarks' own.
    """
    from vllm import LLM

    arguments = engine_arguments(
        model, spec, most_requests=most_requests, compiled=compiled, counts=counts
    )
    arguments |= others or {}
    return LLM(**arguments, additional_config={SECTION: dict(section)} if section else {})


def scheduler_of(llm: Any) -> Any:
    """Return the scheduler of an engine of this process."""
    return llm.llm_engine.engine_core.engine_core.scheduler


def forget_answers(llm: Any) -> None:
    """Clear suffix trees, which would otherwise know the answers of the previous round."""
    runner = llm.llm_engine.model_executor.driver_worker.worker.model_runner
    forget = getattr(getattr(runner, "drafter", None), "forget_answers", None)
    if forget is not None:
        forget()


def keep_out_of_collections() -> None:
    """Exempt all present objects from garbage collections, which would slow the engines down."""
    gc.collect()
    gc.freeze()


def end_engines(engines: list[Any]) -> None:
    """Shut down engines of this process and empty the list, so that they release their memory.

    A shutdown destroys the process groups that all engines of a process share, and a start creates
    them again: do not use a remaining engine in between.

    Args:
        engines: vLLM's ``LLM``; nothing else may hold one.
    """
    # Popped, so that no name holds the last one while garbage is collected.
    while engines:
        engines.pop(0).llm_engine.engine_core.shutdown()
    # ``keep_out_of_collections`` may have frozen them.
    gc.unfreeze()
    gc.collect()


def engine_arguments(
    model: str,
    spec: Mapping[str, Any] | None,
    *,
    most_requests: int,
    compiled: bool,
    counts: bool = False,
) -> dict[str, Any]:
    """Return the arguments of ``LLM`` without our options; see :func:`build_engine`."""
    return {
        "model": model,
        "dtype": "float32",
        "max_model_len": 512,
        "max_num_seqs": most_requests,
        "enforce_eager": not compiled,
        "disable_log_stats": not counts,
        "enable_prefix_caching": False,
        "speculative_config": None if spec is None else dict(spec),
        "seed": 0,
    }
