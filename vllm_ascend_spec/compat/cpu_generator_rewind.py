"""Requests with a seed and a prompt in several chunks, on the CPU.

Why: ``GPUModelRunner._bookkeeping_sync`` (v1/worker/gpu_model_runner.py:3714) of vLLM 0.30 samples
for a request whose prompt is not finished yet, throws the token away, and rewinds the request's
generator by ``set_offset``. A CPU generator has no offset: RuntimeError, and the engine is dead,
with or without speculation.
How: the CPU runner saves the state of those generators before it samples and puts it back after;
the stock rewind does not get to see them.
Until: the CPU runner of vLLM rewinds by state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from vllm_ascend_spec.compat.patching import Patches

_patches = Patches()
revert = _patches.revert


def discarded_generators(runner: Any) -> dict[int, torch.Generator]:
    """Return the generators, by request index, of requests whose token is thrown away."""
    batch = runner.input_batch
    if not batch.generators:
        return {}
    discarded = np.nonzero(runner.discard_request_mask.np[: batch.num_reqs])[0].tolist()
    return {index: batch.generators[index] for index in discarded if index in batch.generators}


def keep_generators(
    patches: Patches,
    runner_class: type,
    discarded: Callable[[Any], dict[int, torch.Generator]],
) -> None:
    """Make a runner class leave the generators of ``discarded(runner)`` as they were."""
    stock: Any = runner_class
    stock_sample, stock_bookkeeping = stock._sample, stock._bookkeeping_sync

    def _sample(self: Any, *args: Any, **kwargs: Any) -> Any:
        saved = [(g, g.get_state()) for g in discarded(self).values()]
        output = stock_sample(self, *args, **kwargs)
        for generator, state in saved:
            generator.set_state(state)
        return output

    def _bookkeeping_sync(self: Any, *args: Any, **kwargs: Any) -> Any:
        hidden = discarded(self)
        for index in hidden:
            del self.input_batch.generators[index]
        try:
            return stock_bookkeeping(self, *args, **kwargs)
        finally:
            self.input_batch.generators.update(hidden)

    patches.set(runner_class, "_sample", _sample)
    patches.set(runner_class, "_bookkeeping_sync", _bookkeeping_sync)


def apply() -> None:
    """Install the mend once."""
    if _patches:
        return
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    keep_generators(_patches, CPUModelRunner, discarded_generators)
