"""How far a CPU's engines run the code of a GPU's runner.

Both runners are our mixin over vLLM's ``GPUModelRunner``. A CPU's has the methods named here
replaced by ``CPUModelRunner``; all others that tests/e2e runs are a GPU's own. No method here runs
on a GPU.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.marks import requires_cpu_build
from tests.patches.cases import taking_out
from vllm_ascend_spec.patches import cpu_accepted_states
from vllm_ascend_spec.worker.cpu_trees import CpuTreesMixin
from vllm_ascend_spec.worker.cuda_trees import CudaTreesMixin

pytestmark = requires_cpu_build
# Methods of GPUModelRunner that a CPU's runner has another way: memory, streams, graphs, loading.
REPLACED = {
    "__init__",
    "_init_device_properties",
    "_sync_device",
    "_to_list",
    "_zero_block_ids",
    "get_model",
    "initialize_kv_cache",
    "load_model",
}


@pytest.fixture(scope="module")
def runners() -> tuple[Any, Any, Any, Any]:
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    from vllm_ascend_spec.worker.cpu import SpecCPUModelRunner
    from vllm_ascend_spec.worker.cuda import SpecGPUModelRunner

    return SpecCPUModelRunner, SpecGPUModelRunner, CPUModelRunner, GPUModelRunner


def test_a_cpu_replaces_these_methods_of_a_gpus_runner_and_no_others(runners: Any) -> None:
    _, _, stock_cpu, stock_gpu = runners
    # An earlier test of this process may have applied it.
    with taking_out() as take_out:
        take_out(cpu_accepted_states)
        assert_replaced(stock_cpu, stock_gpu)


def assert_replaced(stock_cpu: Any, stock_gpu: Any) -> None:
    assert set(vars(stock_cpu)) & set(vars(stock_gpu)) - {"__module__", "__doc__"} == REPLACED


def test_both_have_the_same_parts_of_ours_before_vllms(runners: Any) -> None:
    ours = [
        [cls for cls in runner.__mro__ if cls.__module__.startswith("vllm_ascend_spec")][1:]
        for runner in runners[:2]
    ]
    # A tree's attention is another one.
    ours[0].remove(CpuTreesMixin)
    ours[1].remove(CudaTreesMixin)
    assert ours[0] == ours[1]
    for runner in runners[:2]:
        places = [place for place, cls in enumerate(runner.__mro__) if cls in ours[0]]
        assert max(places) < runner.__mro__.index(runners[3])


def test_nothing_that_we_override_is_among_them(runners: Any) -> None:
    """What a CPU replaces, ours leaves alone: so a GPU's is called as vLLM calls it.

    But for loading, after which trees change the attention (tests/worker/test_cuda_trees.py).
    """
    gpu = runners[1]
    ours = [cls for cls in gpu.__mro__ if cls.__module__.startswith("vllm_ascend_spec")]
    overridden = {name for cls in ours for name in vars(cls) if callable(vars(cls)[name])}
    assert overridden & REPLACED == {"__init__", "load_model"}


def test_they_differ_by_the_cpus_patches_alone(runners: Any) -> None:
    cpu, gpu = runners[:2]
    ours = [{name for name in vars(runner) if not name.startswith("__")} for runner in (cpu, gpu)]
    assert ours == [{"patch_stages"}, set()]
    assert (cpu.patch_stages, gpu.patch_stages) == (("cpu",), ())
