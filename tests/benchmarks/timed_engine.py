"""Time the parts of an engine of this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.benchmarks.interleaved import InterleavedEngine, OfflineLoad
from vllm_ascend_spec.bench.local_engine import build_engine
from vllm_ascend_spec.config.schema import FIXED
from vllm_ascend_spec.metrics.rule import rule_from_engine


class TimedEngine(InterleavedEngine):
    """One engine of this process with this package, and its figures.

    Args:
        model: the target.
        load: the requests to send.
        spec: ``speculative_config``; None for no speculation.
        section: our options.
        compiled: whether to use torch.compile.
        parts: name of a part -> (object, method), as ``InterleavedEngine`` takes them.
    """

    def __init__(
        self,
        model: str,
        load: OfflineLoad,
        spec: Mapping[str, Any] | None,
        *,
        parts: Mapping[str, tuple[str, str]],
        section: Mapping[str, Any] | None = None,
        compiled: bool = False,
    ) -> None:
        # K is fixed, so that a step is timed with its drafts, whether they pay off or not.
        length = None if spec is None else {"draft_length": FIXED}
        llm = build_engine(
            model,
            spec,
            most_requests=max(load.batch, 1),
            section={**length, **(section or {})} if length else section,
            compiled=compiled,
            counts=True,
        )
        super().__init__(llm, load, parts)
        self.rule = rule_from_engine(llm.get_metrics())
