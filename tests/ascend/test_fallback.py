"""Without the AscendC library an NPU verifies by Triton, else by PyTorch, and says so once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ascend.kernels import NPU, on_cpu, on_npu
from tests.ops.batches import as_lists, make_drafts, make_sampled
from tests.ops.parity import assert_right, judge
from vllm_ascend_spec.ops import OPS, ascendc_library, registry, verify_greedy, verify_sample
from vllm_ascend_spec.ops.verify_greedy import OP

pytestmark = pytest.mark.skipif(
    ascendc_library.LIBRARY.is_file(), reason="the AscendC kernels are built here"
)


@pytest.fixture(autouse=True)
def no_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Take the fake away; collect what is logged."""
    monkeypatch.delenv(ascendc_library.EMULATOR_VARIABLE, raising=False)
    logged: list[str] = []
    said: set[str] = set()

    def log_once(_level: int, message: str) -> None:
        if message not in said:
            said.add(message)
            logged.append(message)

    monkeypatch.setattr(registry, "log_once", log_once)
    ascendc_library.library_problem.cache_clear()
    registry._load.cache_clear()
    yield logged
    ascendc_library.library_problem.cache_clear()
    registry._load.cache_clear()


def test_triton_is_next_and_is_named_once(no_library: list[str]) -> None:
    assert OP.status("npu")["triton"] == "ready"
    for seed in (1, 2):
        arguments = make_drafts([3, 0, 2], 301, seed=seed)
        result = verify_greedy(**on_npu(arguments))
        assert as_lists(on_cpu(result)) == as_lists(verify_greedy(**arguments))
    (line,) = no_library
    assert "were not built" in line
    assert "build_ascendc --soc ascend910b" in line
    assert line.endswith("the next backend is used")


@pytest.mark.parametrize("backend", ["triton", "reference"])
@pytest.mark.parametrize("rule", ["token", "block"])
def test_each_of_them_equals_the_reference(backend: str, rule: str) -> None:
    arguments = make_sampled([2, 0, 3], 211, seed=3) | {"rule": rule}
    result = verify_sample(**on_npu(arguments), backend=backend)
    assert_right([judge(arguments, on_cpu(result))], most_ties=1)


def test_without_triton_pytorch_verifies(
    no_library: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for op in OPS:
        module = registry._module(op, "triton")
        monkeypatch.setattr(module, "problem", lambda _device: "no Triton here")
    arguments = make_drafts([2, 1], 65, seed=4)
    result = verify_greedy(**on_npu(arguments))
    assert result[0].device.type == NPU.type
    assert as_lists(on_cpu(result)) == as_lists(verify_greedy(**arguments))
    assert [line.partition(";")[0] for line in no_library][1] == "no Triton here"
