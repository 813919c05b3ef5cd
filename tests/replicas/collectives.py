"""What a worker exchanges with those of the other copies, step by step.

A class for vLLM's option ``worker_extension_cls``: its methods become the worker's.
"""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import torch

# What vLLM and vllm-ascend call of torch.distributed.
CALLS = (
    "all_reduce",
    "all_gather",
    "all_gather_into_tensor",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "gather",
    "reduce_scatter",
    "reduce_scatter_tensor",
)
# A pass, or the second half of one; and what a worker with nothing to do does meanwhile.
PASS, SECOND_HALF, IDLE = "execute_model", "sample_tokens", "execute_dummy_batch"


class Collectives:
    """Notes collectives from :meth:`start_noting` on."""

    def start_noting(self) -> None:
        """Note every collective under the step of the worker that led to it.

        Those of the host are counted as they are called, those of a simulated NPU as they run.
        """
        self.notes: list[tuple[str, Counter[str]]] = []
        for name in CALLS:
            call = getattr(torch.distributed, name)
            setattr(torch.distributed, name, self._noting_call(name, call))
        for name in (PASS, SECOND_HALF, IDLE):
            setattr(self, name, self._noting_step(name, getattr(self, name)))

    def write_notes(self, folder: str) -> None:
        """Write what was noted to a file of this copy."""
        rank = self.vllm_config.parallel_config.data_parallel_rank  # type: ignore[attr-defined]
        (Path(folder) / f"{rank}.json").write_text(json.dumps(self.notes))

    def _noting_call(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def noted(*args: Any, **kwargs: Any) -> Any:
            if self.notes and not any(is_on_device(arg) for arg in args):
                self.notes[-1][1][name] += 1
            return call(*args, **kwargs)

        return noted

    def _noting_step(self, name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(step)
        def noted(*args: Any, **kwargs: Any) -> Any:
            self.notes.append((name, Counter()))
            before = on_device()
            result = step(*args, **kwargs)
            self.notes[-1][1].update(on_device() - before)
            return result

        return noted


def is_on_device(argument: Any) -> bool:
    """Tell whether a device's own counter sees what is done with an argument."""
    return isinstance(argument, torch.Tensor) and argument.device.type != "cpu"


def on_device() -> Counter[str]:
    """Return how often a simulated NPU ran each collective so far, those in graphs too."""
    if importlib.util.find_spec("npu_sim") is None:
        return Counter()
    from npu_sim import counters

    ops = counters.snapshot().ops
    return Counter({name: op.executed for name, op in ops.items() if name.startswith("hccl::")})
