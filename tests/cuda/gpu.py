"""Is there a GPU, and what is an engine's environment on it?

Set ``VLLM_ASCEND_SPEC_TEST_ON_CPU=1`` to try the tests themselves on a CPU: that says nothing about
a GPU.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

from tests.ascend.environment import COMMON
from vllm_ascend_spec.devices import cuda

ON_CPU = os.environ.get("VLLM_ASCEND_SPEC_TEST_ON_CPU") == "1"
CHOSEN = {"VLLM_PLUGINS": "ascend_spec"}
# What makes a CPU bearable, and a GPU slow or wrong.
FOR_A_CPU = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "TRITON_INTERPRET")


@dataclass(frozen=True)
class Tried:
    """What the tests run on.

    Attributes:
        device: as vLLM calls it.
        platform: name of our platform class.
        environment: of an engine.
    """

    device: str
    platform: str
    environment: dict[str, str]


GPU = Tried(
    "cuda",
    "SpecCudaPlatform",
    {
        **{name: value for name, value in COMMON.items() if name not in FOR_A_CPU},
        **CHOSEN,
        "VLLM_ASCEND_SPEC_DEVICE": "cuda",
        # Else Triton's attention multiplies float32 as TF32, with ten bits of a mantissa.
        "TRITON_F32_DEFAULT": "ieee",
    },
)
CPU = Tried("cpu", "SpecCpuPlatform", {**COMMON, **CHOSEN, "VLLM_ASCEND_SPEC_DEVICE": "cpu"})
TRIED = CPU if ON_CPU else GPU


def missing() -> str | None:
    """Return what is not here, or None."""
    if ON_CPU:
        return None
    if not cuda.find():
        return "needs an NVIDIA GPU and vLLM for CUDA"
    import torch

    return None if torch.cuda.is_available() else "needs a GPU that PyTorch can use"


requires_gpu = pytest.mark.skipif(missing() is not None, reason=str(missing()))
