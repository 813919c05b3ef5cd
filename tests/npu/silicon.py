"""What the tests on silicon need, and why they are skipped where it is not there.

Set ``VLLM_ASCEND_SPEC_TEST_SIMULATED=1`` to try the tests themselves on the simulated NPU.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from tests.ascend.environment import NPU
from vllm_ascend_spec.devices import npu

SIMULATED = os.environ.get("VLLM_ASCEND_SPEC_TEST_SIMULATED") == "1"
# What makes a simulated NPU bearable, and a real one slow.
FOR_A_CPU = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "TRITON_INTERPRET")
ENVIRONMENT = NPU if SIMULATED else {k: v for k, v in NPU.items() if k not in FOR_A_CPU}


def missing() -> str | None:
    """Return what is not here, or None."""
    if importlib.util.find_spec("vllm_ascend") is None:
        return "needs vllm-ascend, see docs/ascend.md"
    if not SIMULATED and not npu.find():
        return "needs an Ascend NPU (/dev/davinci*)"
    return None


def devices() -> int:
    """Return how many NPUs there are."""
    return 2 if SIMULATED else len(list(Path("/dev").glob("davinci[0-9]*")))


requires_npu = pytest.mark.skipif(missing() is not None, reason=str(missing()))
