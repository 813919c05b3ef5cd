"""Measure where a step's time goes on the host; the next step reports it, like the draft's graph.

Reading a clock takes a tenth of a microsecond, and each step reads it eight to ten times. Nothing
here waits for an accelerator: with one, a time is how long the host was busy or waited anyway.

Compilation within a step is not counted: vLLM compiles its sampler at the first request that
samples, which takes a CPU many seconds and is not verification.
"""

from __future__ import annotations

import sys
import time
from functools import cached_property
from typing import Any

from vllm.compilation.cuda_graph import CUDAGraphStat

from vllm_ascend_spec.step_text import Times


def compile_seconds() -> float:
    """Return the seconds in which ``torch.compile`` has compiled in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 1e-9 * dynamo.cumulative_time_spent_ns["entire_frame_compile"] if dynamo else 0.0


class Stopwatch:
    """Adds up the seconds in which it is entered, without compilation; not reentrant."""

    def __init__(self) -> None:
        self._seconds = self._since = self._compiled = 0.0

    def __enter__(self) -> None:
        self._since, self._compiled = time.perf_counter(), compile_seconds()

    def __exit__(self, *_: object) -> None:
        # PyTorch's count is less than before if somebody has reset it.
        compiled = max(0.0, compile_seconds() - self._compiled)
        self._seconds += time.perf_counter() - self._since - compiled

    def take(self) -> int:
        """Return the microseconds added up since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return round(1e6 * seconds)


class StepWatches:
    """A stopwatch for the whole step, and for each of two parts of it."""

    def __init__(self) -> None:
        self.step, self.verification, self.drafting = Stopwatch(), Stopwatch(), Stopwatch()

    def take(self) -> Times:
        """Return the times added up since the last call."""
        return Times(self.step.take(), self.verification.take(), self.drafting.take())


class StepTimesMixin:
    """Mixin for a model runner of vLLM or vllm-ascend; must come before it in the bases."""

    @cached_property
    def watches(self) -> StepWatches:
        """Stopwatches of this runner; the code for a part of a step enters that part's."""
        return StepWatches()

    def execute_model(self, *args: Any, **kwargs: Any) -> Any:
        """Do what vLLM does; the signature is vLLM's."""
        with self.watches.step:
            return super().execute_model(*args, **kwargs)  # type: ignore[misc]

    def _determine_batch_execution_and_padding(self, *args: Any, **kwargs: Any) -> Any:
        """Append the times of the previous step to the report about this step's graph."""
        chosen = super()._determine_batch_execution_and_padding(  # type: ignore[misc]
            *args, **kwargs
        )
        if kwargs.get("force_uniform_decode") is not None:  # a dummy run
            return chosen
        *before, said = chosen
        times = self.watches.take()
        if said is None:  # from a worker without graphs
            return (*before, CUDAGraphStat(0, 0, 0, times.behind("")))
        sizes = said.num_unpadded_tokens, said.num_padded_tokens, said.num_paddings
        return (*before, CUDAGraphStat(*sizes, times.behind(said.runtime_mode)))
