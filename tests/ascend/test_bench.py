"""``make bench-npu-sim``: what we claim of a step's cost holds, by counts that repeat."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.ascend.bench import counts, tiers
from tests.ascend.environment import NPU
from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.cli import env

PROMPTS = ["def a(", "import os\n", "class X:", "for i in", "return", "x = 1\n", "while", "with"]
PLAN = counts.Plan(
    model=TARGET,
    speculative_config=SPECS["eagle"],
    prompts=PROMPTS,
    max_tokens=10,
    graph_mode="FULL_DECODE_ONLY",
)


@pytest.fixture(scope="module")
def record() -> dict:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in NPU.items():
            patch.setenv(name, value)
        return counts.run(PLAN, str(env.plugins({})), print)


def test_every_aim_is_met(record: dict) -> None:
    assert [aim for aim in record["aims"] if not aim["met"]] == []
    assert {aim["workload"] for aim in record["aims"]} == set(counts.WORKLOADS)
    json.dumps(record)


def test_what_is_compared_is_what_it_says(record: dict) -> None:
    """Every count is of steps, ours by our kernel and vllm-ascend's by its own."""
    ours, plain = (record["results"][name] for name in (counts.OURS, counts.PLAIN))
    for workload in counts.WORKLOADS:
        assert ours[workload]["steps"] > 0
        assert plain[workload]["steps"] > 0
    kernel = "vllm_ascend_spec_npu::verify_greedy"
    assert ours["greedy"]["verification"]["ops"] == {kernel: 1.0}
    assert kernel not in plain["greedy"]["verification"]["ops"]
    assert ours["sampled"]["verification"]["ops"]["vllm_ascend_spec_npu::verify_sample"] == 1.0
    masks = ours["structured"]["verification"]["ops"]["vllm_ascend_spec_npu::grammar_mask"]
    assert masks == 1.0
    # vllm-ascend masks on the host.
    assert plain["structured"]["verification"]["d2h_bytes"] > 0
    assert plain["greedy"]["draft_rows"] == {"32": 3.0}


@pytest.mark.nightly
def test_a_step_costs_no_more_where_k_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fixed K asks as much of the device, for each K; without drafts one step keeps the cache."""
    for name, value in NPU.items():
        monkeypatch.setenv(name, value)
    plan = replace(PLAN, prompts=PROMPTS[:4], workloads=("greedy",))
    found = tiers.run(plan, str(env.plugins({})), print)["results"]
    for k in (1, 2, 3):
        assert found[f"K={k}"][tiers.CHANGES] == found[f"K={k}"]["K is fixed"]
    assert {rows[tiers.CHANGES]["replays"] for rows in found.values()} == {2.0}
    ops = [rows[tiers.CHANGES]["device_ops"] for rows in found.values()]
    assert ops == sorted(ops)
