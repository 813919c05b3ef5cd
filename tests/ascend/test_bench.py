"""``make bench-npu-sim``: what we claim of a step's cost holds, by counts that repeat."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from tests.ascend.bench import counts, families, tiers, trees
from tests.ascend.environment import KERNEL_CHECKS, NPU
from tests.ascend.processes import Engines
from tests.docs.figures.rows import read
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
def record(engines: Engines, tmp_path_factory: pytest.TempPathFactory) -> dict:
    """Count; ours in a copy of a process that has imported vLLM, without the kernels' checks.

    What is read and written depends on neither.
    """
    output = tmp_path_factory.mktemp("counts") / "ours.json"

    def count(plan: counts.Plan, name: str, plugins: str) -> dict[str, Any]:
        if name != counts.OURS:
            return counts.count(asdict(plan), name, plugins)
        job = {"module": counts.CHILD, "output": str(output), **counts.job_of(asdict(plan), name)}
        engines.start(job, {**NPU, KERNEL_CHECKS: "0"})
        return json.loads(output.read_text())

    with pytest.MonkeyPatch.context() as patch:
        for name, value in NPU.items():
            patch.setenv(name, value)
        patch.setattr(counts, "_count", count)
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
    assert ours["sampled"]["verification"]["ops"]["vllm_ascend_spec_npu::verify_seeded"] == 1.0
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


@pytest.mark.nightly
@pytest.mark.parametrize("family", ["deepseek", "qwen3-moe"])
def test_a_familys_record_is_what_is_counted(family: str) -> None:
    """tests/docs/test_figures.py compares the record with the documents."""
    record = read("npu-sim-families")
    prompts = families.prompts_of(record["requests"])
    asked = families.plan_of(families.FAMILIES[family], "FULL_DECODE_ONLY", prompts, 16)
    found = families.run({family: {"FULL_DECODE_ONLY": asked}}, str(env.plugins({})), print)
    cell = found["results"][family]["FULL_DECODE_ONLY"]
    recorded = record["results"][family]["FULL_DECODE_ONLY"]
    ours, plain = cell[counts.OURS], cell[counts.PLAIN]
    for counted, wanted in ((ours, recorded[counts.OURS]), (plain, recorded[counts.PLAIN])):
        assert counted["step"]["device_ops"] == wanted["step"]["device_ops"]
        assert counted["draft_rows"] == wanted["draft_rows"]
    assert cell["same_answers"]
    assert (ours["draft_rows"], plain["draft_rows"]) == ({"32": 1, "8": 2}, {"32": 3})


@pytest.mark.nightly
def test_the_record_of_trees_is_what_is_counted() -> None:
    """Of one shape; tests/docs/test_figures.py compares the record with the documents."""
    record = read("trees-npu-sim")
    plan = trees.plan_of(trees.make_parser().parse_args([]))
    assert (plan.num_drafts, len(plan.prompts)) == (record["drafts"], record["requests"])
    job = trees.ways(plan, "5x3")[trees.BEST]
    found = counts.count(job, counts.OURS, str(env.plugins({})))["greedy"]
    recorded = record["results"][trees.BEST]
    assert found["draft_rows"] == recorded["draft_rows"]
    for part in trees.PARTS:
        assert trees.figures_of(found[part]) == recorded[part]
    assert record["same_answers"]


def test_an_engines_last_error_is_kept_in_one_line() -> None:
    output = (
        "vllm-ascend failed:\n[rank0]: RuntimeError: first\n  in f\n[rank0]: a.B.OpError: last\n"
    )
    assert families.last_error(output) == "a.B.OpError: last"
    assert families.last_error("vllm-ascend failed:\nKilled") == "Killed"
