"""Which library the ``ascendc`` backend uses, and what it says where there is none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from ops.emulator import library as emulator_library
from ops.emulator.report import EmulatorError
from tests.ops.ascendc.kernels import SOURCES, make_emulator
from tests.ops.batches import as_lists, int32, make_drafts, make_sampled
from tests.ops.emulator.build import requires_compiler
from tests.ops.seeded import seeded_case
from tests.ops.trees import ties_of_result, tree_cases
from vllm_ascend_spec.errors import BackendUnavailableError
from vllm_ascend_spec.ops import (
    ascendc_library,
    grammar_mask,
    verify_greedy,
    verify_sample,
)
from vllm_ascend_spec.ops.ascendc_library import library, use
from vllm_ascend_spec.ops.checksum import write_checksum
from vllm_ascend_spec.ops.verify_greedy import OP
from vllm_ascend_spec.ops.verify_greedy import ascendc as greedy
from vllm_ascend_spec.ops.verify_seeded import verify_seeded
from vllm_ascend_spec.ops.verify_tree import verify_tree

NAME = ascendc_library.NAMESPACE


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Look for the library in an empty folder; return where it would be."""
    monkeypatch.setattr(ascendc_library, "LIBRARY", tmp_path / "lib.so")
    monkeypatch.setattr(ascendc_library, "SOC", tmp_path / "soc.txt")
    monkeypatch.delenv(ascendc_library.EMULATOR_VARIABLE, raising=False)
    ascendc_library.library_problem.cache_clear()
    yield tmp_path / "lib.so"
    ascendc_library.library_problem.cache_clear()


def test_it_is_not_picked_for_cpu_tensors() -> None:
    assert OP.status("cpu")["ascendc"] == (
        "the AscendC kernels run on an NPU, these tensors are on cpu"
    )


def test_asked_for_by_name_on_a_cpu_it_says_why_not() -> None:
    with pytest.raises(BackendUnavailableError, match="these tensors are on cpu"):
        verify_greedy(**make_drafts([1], 4, seed=0), backend="ascendc")


def test_a_library_that_was_not_built_names_the_remedy() -> None:
    problem = OP.status("npu")["ascendc"]
    assert "were not built" in problem
    assert "python -m vllm_ascend_spec.ops.build_ascendc --soc" in problem
    with pytest.raises(BackendUnavailableError, match="were not built"):
        library("npu")
    with pytest.raises(BackendUnavailableError, match="on cpu"):
        greedy.verify_greedy(**make_drafts([1], 4, seed=0))


def test_a_library_that_cannot_be_loaded_says_why(fresh: Path) -> None:
    fresh.write_bytes(b"not a library")
    problem = ascendc_library.library_problem()
    assert problem is not None
    assert "cannot be loaded" in problem
    assert str(fresh) in problem


def test_damaged_kernels_are_not_loaded(fresh: Path) -> None:
    kernels = fresh.with_name("libkernels.so")
    for path in (fresh, kernels):
        path.write_bytes(b"built")
        write_checksum(path)
    kernels.write_bytes(b"cut")
    problem = ascendc_library.library_problem()
    assert problem is not None
    assert problem.startswith("the AscendC kernels cannot be loaded: libkernels.so is damaged")
    assert "remedy: run python -m vllm_ascend_spec.ops.build_ascendc" in problem


@pytest.mark.parametrize(
    ("device", "built_for", "fits"),
    [
        ("Ascend910B2", "ascend910b1", True),
        ("Ascend910_9391", "ascend910_9382", True),
        ("Ascend910B3", "ascend910_9391", False),
        ("Ascend910_9391", "ascend910b1", False),
        ("Ascend910B3", "", False),
        ("", "ascend910b1", True),
    ],
)
def test_kernels_are_for_one_family_of_chips(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, device: str, built_for: str, fits: bool
) -> None:
    fresh.write_bytes(b"not a library")
    fresh.with_name("soc.txt").write_text(built_for + "\n")
    npu = SimpleNamespace(get_device_name=lambda: device)
    monkeypatch.setattr(torch, "npu", npu if device else None, raising=False)
    problem = ascendc_library.library_problem()
    assert problem is not None
    if fits:
        assert "cannot be loaded" in problem
    else:
        assert f"this is a {device}" in problem
        assert f"--soc {device.lower()}" in problem


@pytest.mark.parametrize("device", ["Ascend310P3", "Ascend910ProB", "Ascend950PR"])
def test_other_chips_have_no_kernels_and_are_told_so(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    fresh.write_bytes(b"not a library")
    npu = SimpleNamespace(get_device_name=lambda: device)
    monkeypatch.setattr(torch, "npu", npu, raising=False)
    assert ascendc_library.library_problem() == (
        "the AscendC kernels are for Ascend910b* and Ascend910_93* (Atlas A2 and A3), but this "
        f"is an {device}"
    )


@requires_compiler
def test_the_environment_may_name_an_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ascendc_library.EMULATOR_VARIABLE, "tests.ops.ascendc.kernels:make_emulator")
    monkeypatch.setenv(emulator_library.CORES_VARIABLE, "6")
    ascendc_library._named.cache_clear()
    arguments = make_drafts([2, 0, 3], 9, seed=1)
    result = verify_greedy(**arguments, backend="ascendc")
    assert as_lists(result) == as_lists(verify_greedy(**arguments, backend="reference"))
    emulator = library("cpu")
    assert isinstance(emulator, emulator_library.Emulator)
    assert emulator.num_cores == 6
    ascendc_library._named.cache_clear()


@pytest.mark.parametrize("named", ["nowhere", "no.such.module:make", "os:no_such_function"])
def test_an_emulator_that_cannot_be_had_is_named(
    named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ascendc_library.EMULATOR_VARIABLE, named)
    problem = OP.status("npu")["ascendc"]
    assert problem.startswith(f"VLLM_ASCEND_SPEC_ASCENDC={named}: ")
    assert problem.endswith("valid: module:function")


@requires_compiler
def test_emulators_end_with_their_block() -> None:
    emulator = make_emulator(num_cores=2)
    with use(emulator):
        assert library("cpu") is emulator
    with pytest.raises(BackendUnavailableError):
        library("cpu")


@requires_compiler
def test_what_the_host_refuses_is_an_error() -> None:
    with (
        use(make_emulator(num_cores=0)),
        pytest.raises(ValueError, match=r"num_cores: 0 is not in \[1, 64\]"),
    ):
        verify_greedy(**make_drafts([1], 4, seed=0), backend="ascendc")


@requires_compiler
def test_a_broken_rule_of_the_hardware_is_an_error() -> None:
    emulator = make_emulator(num_cores=2)
    logits = torch.zeros(2, 4)
    with pytest.raises(EmulatorError, match="verify_greedy, core 0, GlobalTensor::GetValue"):
        emulator.verify_greedy(logits, int32([0]), int32([5]), 5)


@pytest.fixture
def built() -> Iterator[None]:
    """Define the library's ops as its C++ part does, run by the emulator."""
    text = (SOURCES / "binding" / "binding.cpp").read_text()
    schemas = [
        "".join(re.findall('"(.*?)"', found))
        for found in re.findall(r"m\.def\((.*?)\);", text, re.S)
    ]
    emulator = make_emulator(num_cores=3)
    ops = torch.library.Library(NAME, "DEF")
    for schema in schemas:
        ops.define(schema)

    def sample(*arguments: torch.Tensor, block_rule: bool, **options: torch.Tensor) -> object:
        return emulator.verify_sample(
            *arguments, rule="block" if block_rule else "token", **options
        )

    for name, function in (
        ("verify_greedy", emulator.verify_greedy),
        ("verify_sample", sample),
        ("verify_seeded", emulator.verify_seeded),
        ("verify_tree", emulator.verify_tree),
        ("grammar_mask", emulator.grammar_mask),
    ):
        ops.impl(name, function, "CPU")
    yield
    ops._destroy()


@requires_compiler
@pytest.mark.parametrize("rule", ["token", "block"])
def test_built_ops_are_called_by_their_schemas(built: None, rule: str) -> None:
    arguments = {**make_sampled([2, 0, 3], 9, seed=3, with_draft_probs=True), "rule": rule}
    with use(ascendc_library._Built()):
        got = verify_sample(**arguments, backend="ascendc")
        drafts = make_drafts([2, 0, 3], 9, seed=3)
        greedy_got = verify_greedy(**drafts, backend="ascendc")
        seeded = seeded_case(make_sampled([2, 0, 3], 9, seed=3), 0)
        seeded_got = verify_seeded(**seeded, backend="ascendc")
        (tree,) = tree_cases(1, seed=3, vocab_size=9)
        tree_got = verify_tree(**tree, backend="ascendc")
        logits = torch.zeros(2, 40)
        bitmask = torch.tensor([[1, 0], [-1, -1]], dtype=torch.int32)
        grammar_mask(logits, bitmask, int32([1, -1]), backend="ascendc")
    assert as_lists(got) == as_lists(verify_sample(**arguments, backend="reference"))
    assert as_lists(greedy_got) == as_lists(verify_greedy(**drafts, backend="reference"))
    assert as_lists(seeded_got) == as_lists(verify_seeded(**seeded, backend="reference"))
    assert ties_of_result(tree, tree_got) == 0
    assert logits.isfinite().sum(dim=1).tolist() == [40, 1]
