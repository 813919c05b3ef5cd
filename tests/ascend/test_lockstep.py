"""Copies of a mixture of experts on the NPU run in step, whether they have work or not.

tests/e2e/test_lockstep.py says why.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ascend.environment import IS_SIMULATED, NPU
from tests.ascend.matrix import MODES
from tests.copies.cases import assert_in_step, run_case, wrong_answers
from tests.copies.lockstep import beside_idle
from vllm_ascend_spec.cli import env

pytestmark = pytest.mark.skipif(not IS_SIMULATED, reason="counts what the simulated NPU ran")
DEVICE = {**NPU, "NPU_SIM_DEVICES": "2", "VLLM_PLUGINS": str(env.plugins({}))}
# vllm-ascend lets a dense draft run without asking the other copies.
EXCHANGED = {"eagle": {"all_reduce": 1, "hccl::all_gather": 2, "hccl::reduce_scatter": 1}}


@pytest.mark.parametrize(
    ("method", "mode"),
    [("eagle", "full_decode_only"), pytest.param("eagle", "eager", marks=pytest.mark.nightly)],
)
def test_a_copy_without_work_keeps_in_step(method: str, mode: str, tmp_path: Path) -> None:
    target, ran = run_case(method, tmp_path, DEVICE, **MODES[mode])
    assert_in_step(ran)
    assert all(counts == EXCHANGED[method] for counts in beside_idle(*ran.steps))
    assert not wrong_answers(target, ran)
