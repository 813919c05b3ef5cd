"""The AscendC source runs as ops of the NPU: chosen by itself, checked, and part of graphs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ops.emulator.library import Emulator
from ops.emulator.report import EmulatorError
from tests.ascend.kernels import NPU, DeviceEmulator, on_cpu, on_npu
from tests.ops.ascendc.kernels import SOURCES, make_emulator
from tests.ops.batches import as_lists, make_drafts, make_sampled
from tests.ops.emulator.build import build
from tests.ops.emulator.mutations import MUTATIONS
from tests.ops.parity import assert_right, judge
from tests.ops.seeded import seeded_case, ties_of_result
from tests.ops.trees import ties_of_result as ties_of_trees
from tests.ops.trees import tree_cases
from vllm_ascend_spec.ops import grammar_mask, verify_greedy, verify_sample
from vllm_ascend_spec.ops.ascendc_library import use
from vllm_ascend_spec.ops.verify_seeded import verify_seeded
from vllm_ascend_spec.ops.verify_tree import verify_tree


@pytest.fixture(autouse=True)
def kernels() -> Iterator[DeviceEmulator]:
    """Let our kernels run on this process's simulated NPU."""
    library = DeviceEmulator(make_emulator(num_cores=8))
    with use(library):
        yield library


def launches(kernels: DeviceEmulator) -> int:
    """Return how many instructions the emulator counted in its last launch."""
    return sum(kernels.emulator.stats.instructions)


@pytest.mark.parametrize("lengths", [[3, 0, 2], [0, 0], [5]])
def test_greedy_verification_runs_the_kernel_on_the_npus_memory(
    kernels: DeviceEmulator, lengths: list[int]
) -> None:
    arguments = make_drafts(lengths, 301, seed=1)
    result = verify_greedy(**on_npu(arguments))
    assert [tensor.device.type for tensor in result] == ["npu", "npu"]
    assert launches(kernels) > 0
    assert as_lists(on_cpu(result)) == as_lists(verify_greedy(**arguments))


@pytest.mark.parametrize("rule", ["token", "block"])
def test_sampled_verification_equals_the_reference(kernels: DeviceEmulator, rule: str) -> None:
    arguments = make_sampled([2, 4, 0, 3], 211, seed=2) | {"rule": rule}
    tokens, counts = verify_sample(**on_npu(arguments))
    assert launches(kernels) > 0
    assert_right([judge(arguments, on_cpu((tokens, counts)))], most_ties=1)


def test_seeded_verification_equals_the_reference(kernels: DeviceEmulator) -> None:
    arguments = seeded_case(make_sampled([2, 4, 0, 3], 1500, seed=2), 0)
    result = verify_seeded(**on_npu(arguments))
    assert launches(kernels) > 0
    assert ties_of_result(arguments, on_cpu(result)) == 0


def test_verification_of_trees_equals_the_reference(kernels: DeviceEmulator) -> None:
    (case,) = tree_cases(1, seed=2, vocab_size=1500)
    result = verify_tree(**on_npu(case))
    assert launches(kernels) > 0
    assert ties_of_trees(case, tuple(tensor.cpu() for tensor in result)) == 0


def test_masks_are_applied_in_place(kernels: DeviceEmulator) -> None:
    logits = torch.zeros(3, 70, device=NPU)
    words = torch.full((1, 3), 5, dtype=torch.int32, device=NPU)
    grammar_mask(logits, words, torch.tensor([1], dtype=torch.int32, device=NPU))
    assert launches(kernels) > 0
    kept = logits.cpu()[1].isfinite().nonzero().flatten().tolist()
    assert kept == [0, 2, 32, 34, 64, 66]
    assert logits.cpu()[[0, 2]].eq(0).all()


def test_torch_ops_are_the_same_kernels(kernels: DeviceEmulator) -> None:
    arguments = on_npu(make_drafts([2, 1], 65, seed=3))
    result = torch.ops.vllm_ascend_spec.verify_greedy(*arguments.values())
    assert launches(kernels) > 0
    expected = verify_greedy(**arguments, backend="reference")
    assert as_lists(on_cpu(result)) == as_lists(on_cpu(expected))


def test_a_captured_verification_follows_its_inputs(kernels: DeviceEmulator) -> None:
    first, second = (make_drafts([3, 3], 129, seed=seed) for seed in (4, 5))
    held = on_npu(first)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        outputs = verify_greedy(**held)
    for arguments in (second, first):
        for name in ("logits", "draft_token_ids", "cu_num_draft_tokens"):
            held[name].copy_(arguments[name])
        graph.replay()
        assert as_lists(on_cpu(outputs)) == as_lists(verify_greedy(**arguments))


def test_a_kernel_that_breaks_a_rule_of_the_hardware_is_an_error(tmp_path: Path) -> None:
    """Negative control: without its barrier, cores read what others have not written yet."""
    mutation = next(one for one in MUTATIONS if one.name == "SyncAll forgotten")
    sources = tmp_path / "ascendc"
    shutil.copytree(SOURCES, sources)
    file = sources / mutation.file
    assert mutation.old in file.read_text()
    file.write_text(file.read_text().replace(mutation.old, mutation.new))
    library = build(sources / mutation.op / "emulator_host.cpp", optimise=False)
    (tmp_path / f"{mutation.op}.so").symlink_to(library)
    emulator = Emulator(tmp_path, num_cores=3, mode="split", tile=256)
    with (
        use(DeviceEmulator(emulator)),
        pytest.raises(EmulatorError, match=r"\[(core-race|uninitialised)\]"),
    ):
        verify_greedy(**on_npu(make_drafts([2, 0, 3, 1], 1003, seed=6, broken=False)))
