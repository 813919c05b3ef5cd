"""The order of the tests: those that take long come first.

So no process runs a long one while the others have nothing left to do.
"""

from __future__ import annotations

from collections import Counter

import pytest

# Seconds of the files that take most, as `make test` lists them at its end. A wrong
# number costs time and nothing else.
LONG: dict[str, int] = {
    "tests/e2e/test_train_command.py": 150,
    "tests/e2e/test_greedy_equality.py": 128,
    "tests/e2e/test_seeds.py": 108,
    "tests/e2e/test_w8a8.py": 102,
    "tests/docs/test_run.py": 95,
    "tests/ops/triton/test_interpreter_own.py": 28,
    "tests/e2e/test_examples.py": 92,
    "tests/ops/triton_ascend/test_execute.py": 56,
    "tests/e2e/test_distribution.py": 85,
    "tests/e2e/test_server.py": 61,
    "tests/ops/triton/test_interpreter_contract.py": 14,
    "tests/e2e/test_guides.py": 54,
    "tests/ops/cpu/test_sources.py": 34,
    "tests/e2e/test_trees.py": 46,
    "tests/config/test_fuzz.py": 26,
    "tests/e2e/test_mixtures.py": 43,
    "tests/bench/test_sweep.py": 43,
    "tests/training/test_fit.py": 42,
    "tests/e2e/test_bad_input.py": 40,
    "tests/e2e/test_server_again.py": 38,
    "tests/verification/test_chain.py": 22,
    "tests/e2e/test_connector.py": 31,
    "tests/ops/ascendc/test_distribution.py": 22,
    "tests/e2e/test_eagle3.py": 29,
    "tests/ops/test_chi_square.py": 17,
    "tests/ops/triton_ascend/test_lint.py": 20,
    "tests/e2e/test_tensor_parallel.py": 26,
    "tests/ops/test_parity.py": 29,
    "tests/graphs/test_planner.py": 10,
    "tests/e2e/test_mtp.py": 26,
    "tests/e2e/test_golden_acceptance.py": 26,
    "tests/ops/test_verify_seeded.py": 26,
    "tests/ops/test_judge.py": 18,
    "tests/e2e/test_adaptive.py": 21,
    "tests/docs/test_blocks.py": 23,
    "tests/training/phases/test_answers_and_states.py": 21,
    "tests/upstream/test_conformance.py": 10,
    "tests/devices/test_added_device.py": 19,
    "tests/ops/test_enumeration.py": 15,
    "tests/e2e/test_modelarts.py": 18,
    "tests/ops/cpu/test_build.py": 18,
    "tests/e2e/test_draft_graphs.py": 18,
    "tests/test_wheel.py": 17,
    "tests/e2e/test_structured_output.py": 17,
    "tests/e2e/test_edits.py": 16,
    # On the simulated NPU.
    "tests/ascend/test_matrix.py": 250,
    # With those that it is together with.
    "tests/ascend/test_state_engines.py": 100,
    "tests/ascend/test_multimodal.py": 100,
    "tests/ascend/test_state_targets.py": 85,
    "tests/ascend/test_mla.py": 75,
    "tests/ascend/test_changing_k.py": 45,
    "tests/ascend/test_trees.py": 45,
    "tests/ascend/test_mixtures.py": 37,
    "tests/ascend/test_same_drafts.py": 35,
    "tests/ascend/test_bench.py": 35,
    "tests/ascend/test_serve.py": 30,
    "tests/ascend/test_switch.py": 25,
    "tests/upstream/test_vllm_ascend_tests.py": 25,
    "tests/ascend/test_gemma4.py": 24,
    "tests/ascend/test_lockstep.py": 22,
    "tests/ascend/test_graph_steps.py": 22,
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
    """Order tests by how long what a process gets at once takes; the order within a file stays.

    Tests that any process may run take their share each, so they fill what the others leave.
    """
    numbers = Counter(file_of(item.nodeid) for item in items)

    def seconds(item: pytest.Item) -> float:
        file = file_of(item.nodeid)
        return LONG.get(file, 0) / (numbers[file] if file in APART else 1)

    items.sort(key=lambda item: -seconds(item))
