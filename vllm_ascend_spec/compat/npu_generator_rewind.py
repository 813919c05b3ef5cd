"""Requests with a seed and a prompt in several chunks, on the NPU.

Why: ``NPUModelRunner._bookkeeping_sync`` (worker/model_runner_v1.py:3047) of vllm-ascend 0.30.0rc2
rewinds the generator of a request whose prompt is not finished by a fixed 4, whatever was drawn
from it. The answer of a seeded request then depends on how its prompt was cut.
How: the generators' states are saved before the step samples and put back after, as on the CPU.
Until: vllm-ascend rewinds by what was drawn, or samples for finished prompts only.
"""

from __future__ import annotations

from typing import Any

import torch

from vllm_ascend_spec.compat.cpu_generator_rewind import keep_generators
from vllm_ascend_spec.compat.patching import Patches

_patches = Patches()
revert = _patches.revert


def discarded_generators(runner: Any) -> dict[int, torch.Generator]:
    """Return the generators, by request index, of requests whose token is thrown away."""
    generators = runner.input_batch.generators
    if not generators:
        return {}
    discarded = runner.discard_request_indices.np[: runner.num_discarded_requests].tolist()
    return {index: generators[index] for index in discarded if index in generators}


def apply() -> None:
    """Install the mend once."""
    if _patches:
        return
    from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

    keep_generators(_patches, NPUModelRunner, discarded_generators)
