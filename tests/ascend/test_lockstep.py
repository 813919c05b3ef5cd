"""Copies of a mixture of experts on the NPU run in step, whether they have work or not.

tests/e2e/test_lockstep.py says why.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.ascend.environment import IS_SIMULATED, NPU
from tests.ascend.matrix import MODES
from tests.ascend.processes import Engines
from tests.ascend.targets.mla import MLA_ENVIRONMENT
from tests.replicas.cases import DRAFTS, END, SCHEDULE, assert_in_step, run_case, wrong_answers
from tests.replicas.lockstep import beside_idle
from tests.replicas.processes import Start

pytestmark = pytest.mark.skipif(not IS_SIMULATED, reason="counts what the simulated NPU ran")
DEVICE = {**NPU, "NPU_SIM_DEVICES": "2"}
# By pair of a target and a draft, the passes of a step through a layer of experts. The target of
# EAGLE-3 is the zoo's, of three such layers. The DeepSeek V3.2 has two, and one in its MTP layer.
PASSES = {"eagle": 1, "eagle3": 3, "mtp": 1 + DRAFTS, "sparse-mtp": 2 + DRAFTS}
# How often copies compare their batches where it is more than once: a draft without experts runs
# unasked, others for step 1 and once for later steps. A full graph of ours holds all steps, and is
# asked for once, as is vllm-ascend's loop; prompts run without such a graph.
COMPARED = {
    ("mtp", "eager"): {3},
    ("mtp", "full_decode_only"): {2, 3},
    ("sparse-mtp", "eager"): {3},
    ("sparse-mtp", "full_decode_only"): {2, 3},
}
ONCE = {1}
# Copies that have half of the experts each, instead of half of each.
EXPERT_PARALLEL = ("eagle3", "sparse-mtp")
FULL_GRAPHS = {"compilation_config": {"cudagraph_mode": "FULL_DECODE_ONLY"}}
# Drafts are made for the first half of the context.
SHORTER = {"max_model_len": END // 2}


@pytest.fixture
def start(engines: Engines) -> Start:
    """Return what runs the copies from a process that has imported vLLM."""

    def run(job: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
        output = Path(job["folder"]) / "answers.json"
        job = {"module": "tests.replicas.engine", "output": str(output), **job}
        engines.start(job, dict(environment))
        return json.loads(output.read_text())

    return run


@pytest.mark.parametrize(
    ("name", "mode", "options"),
    [
        pytest.param("mtp", "eager", SCHEDULE, id="mtp-eager-schedule"),
        pytest.param("mtp", "eager", SHORTER, id="mtp-shorter-draft", marks=pytest.mark.nightly),
        pytest.param("mtp", "eager", {}, marks=pytest.mark.nightly),
        pytest.param("mtp", "full_decode_only", {}, marks=pytest.mark.nightly),
        pytest.param("sparse-mtp", "eager", {}, marks=pytest.mark.nightly),
        pytest.param("sparse-mtp", "full_decode_only", {}, marks=pytest.mark.nightly),
        pytest.param("sparse-mtp", "full_decode_only", SCHEDULE, marks=pytest.mark.nightly),
        pytest.param("eagle", "full_decode_only", {}, marks=pytest.mark.nightly),
        pytest.param("eagle", "full_decode_only", SCHEDULE, marks=pytest.mark.nightly),
        pytest.param("eagle", "eager", {}, marks=pytest.mark.nightly),
        pytest.param("eagle3", "eager", {}, marks=pytest.mark.nightly),
        pytest.param("eagle3", "full_decode_only", {}, marks=pytest.mark.nightly),
    ],
)
def test_a_copy_without_work_keeps_in_step(
    name: str, mode: str, options: dict[str, Any], tmp_path: Path, start: Start
) -> None:
    how = MODES["eager"] if mode == "eager" else FULL_GRAPHS
    device = DEVICE | (MLA_ENVIRONMENT if "mtp" in name else {})
    experts = {"enable_expert_parallel": name in EXPERT_PARALLEL}
    target, ran = run_case(name, tmp_path, device, options, start, **how, **experts)
    assert_in_step(ran)
    assert (ran.length < DRAFTS - 0.5) == bool(options)
    found = beside_idle(*ran.steps)
    compared = {counts.pop("all_reduce") for counts in found}
    assert compared == COMPARED.get((name, mode), ONCE)
    passes = PASSES[name]
    exchanged = {"hccl::all_gather": 2 * passes, "hccl::reduce_scatter": passes}
    assert all(counts == exchanged for counts in found)
    assert not wrong_answers(target, ran)


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["eager", "full_decode_only"])
def test_copies_that_share_an_output_layer(mode: str, tmp_path: Path, start: Start) -> None:
    """Each brings as many rows to it as the other, in draft steps, too, whatever its batch is."""
    graphs = {"compilation_config": {"cudagraph_mode": mode.upper()}}
    how = MODES["eager"] if mode == "eager" else graphs
    shares = {"finegrained_tp_config": {"lmhead_tensor_parallel_size": 2}}
    options = {**shares, "ascend_spec": {"draft_loop": "ours"}}
    target, ran = run_case("eagle", tmp_path, DEVICE, {}, start, **how, additional_config=options)
    assert_in_step(ran)
    assert not wrong_answers(target, ran)
