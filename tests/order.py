"""The order of the tests: those that take long come first.

So no process runs a long one while the others have nothing left to do.
"""

from __future__ import annotations

import pytest

# Seconds of CPU time of the files that take most, as `make test` lists them at its end. A wrong
# number costs time and nothing else.
LONG: dict[str, int] = {
    "tests/e2e/test_greedy_equality.py": 400,
    "tests/e2e/test_train_command.py": 260,
    "tests/docs/test_run.py": 170,
    "tests/e2e/test_w8a8.py": 170,
    "tests/ops/triton_ascend/test_execute.py": 164,
    "tests/e2e/test_examples.py": 150,
    "tests/e2e/test_guides.py": 80,
    "tests/ops/triton/test_interpreter_own.py": 90,
    "tests/e2e/test_server.py": 121,
    "tests/e2e/test_distribution.py": 110,
    "tests/upstream/test_vllm_tests.py": 102,
    "tests/ops/emulator/test_mutations.py": 97,
    "tests/e2e/test_request_options.py": 90,
    "tests/ops/triton/test_interpreter_contract.py": 90,
    "tests/ops/test_enumeration.py": 85,
    "tests/e2e/test_adaptive.py": 80,
    "tests/verification/test_chain.py": 75,
    "tests/e2e/test_golden_acceptance.py": 70,
    "tests/e2e/test_server_ends.py": 60,
    "tests/e2e/test_seeds.py": 60,
    "tests/e2e/test_bad_input.py": 60,
    "tests/e2e/test_features.py": 60,
    "tests/e2e/test_mixtures.py": 57,
    "tests/config/test_fuzz.py": 55,
    "tests/e2e/test_rules.py": 53,
    "tests/ops/ascendc/test_distribution.py": 52,
    "tests/e2e/test_modelarts.py": 50,
    "tests/e2e/test_draft_graphs.py": 50,
    "tests/e2e/test_server_again.py": 45,
    "tests/e2e/test_structured_output.py": 45,
    "tests/ops/test_parity.py": 45,
    "tests/graphs/test_planner.py": 45,
    "tests/upstream/test_surface.py": 44,
    "tests/e2e/test_tensor_parallel.py": 44,
    "tests/e2e/test_lockstep.py": 40,
    "tests/e2e/test_mtp.py": 40,
    "tests/ops/test_chi_square.py": 37,
    "tests/e2e/test_draft_loop.py": 35,
    "tests/e2e/test_seen.py": 35,
    "tests/ops/cpu/test_sources.py": 34,
    "tests/ops/triton_ascend/test_lint.py": 33,
    "tests/e2e/test_edits.py": 33,
    "tests/ops/test_acceptance.py": 32,
    "tests/e2e/test_thinking_budget.py": 30,
    "tests/devices/test_added_device.py": 28,
    "tests/ops/test_judge.py": 27,
    "tests/e2e/test_nan_drafts.py": 26,
    "tests/bench/test_accuracy.py": 25,
    "tests/cli/test_plan.py": 25,
    "tests/bench/test_sweep.py": 25,
    "tests/e2e/test_eagle3.py": 25,
    "tests/e2e/test_data_parallel.py": 20,
    "tests/ops/cpu/test_build.py": 20,
    # On the simulated NPU.
    "tests/ascend/test_matrix.py": 900,
    "tests/ascend/test_mla.py": 120,
    "tests/ascend/test_bench.py": 100,
    "tests/upstream/test_vllm_ascend_tests.py": 95,
    "tests/ascend/test_serve.py": 60,
    "tests/ascend/test_state_engines.py": 60,
    "tests/ascend/test_multimodal.py": 60,
    "tests/ascend/test_state_targets.py": 58,
    "tests/ascend/test_changing_k.py": 55,
    "tests/ascend/test_lockstep.py": 48,
    "tests/ascend/test_switch.py": 40,
    "tests/ascend/test_mixtures.py": 40,
    "tests/ascend/test_gemma4.py": 40,
    "tests/ascend/test_compressed.py": 30,
    "tests/ascend/test_graph_steps.py": 28,
    "tests/ascend/test_shared_indices.py": 25,
    "tests/ascend/test_check.py": 20,
}
# What their tests share lies on disk, so any process may run any of them.
APART = frozenset(
    {
        "tests/ascend/test_matrix.py",
        "tests/ascend/test_mutations.py",
        "tests/ascend/test_draft_width.py",
        "tests/ascend/test_same_drafts.py",
    }
)

# Engines of both are copied from one process that no others are copied from.
TOGETHER = {"tests/ascend/test_multimodal.py": "tests/ascend/test_state_engines.py"}

# Engines are of one method each, so what they share is shared by the tests of a method. Its tests'
# names begin with the method, as in ``test_preemption[eagle]``.
BY_METHOD = frozenset({"tests/e2e/test_greedy_equality.py"})


def file_of(nodeid: str) -> str:
    """Return the file of a test."""
    return nodeid.partition("::")[0]


def shared_by(nodeid: str) -> str:
    """Return the name of what a test shares its engines with."""
    file, _, test = nodeid.partition("::")
    if file in APART:
        return nodeid
    if file in BY_METHOD:
        return f"{file}::{test.partition('[')[2].partition('-')[0].rstrip(']')}"
    return TOGETHER.get(file, file)


def longest_first(items: list[pytest.Item]) -> None:
    """Order tests by how long their files take; the order within a file stays."""
    items.sort(key=lambda item: -LONG.get(file_of(item.nodeid), 0))
