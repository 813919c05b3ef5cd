"""vLLM's CUDA platform in a process without CUDA.

``python -m tests.platform.fake_cuda`` reads names of scenarios with their arguments from stdin
and writes what came of each to stdout, both as JSON. Two things are put in the place of a GPU:
compiled modules, which are empty here, and what a driver would say of the GPU, on ``Fake``.
Everything else is vLLM's own code for CUDA, and ours.
"""

from __future__ import annotations

import json
import os
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

COMPILED = ("vllm._C_stable_libtorch", "vllm.vllm_flash_attn")
# Asked as vLLM is imported: which matrix multiplications there are.
QUESTIONS = (
    "cutlass_scaled_mm_supports_block_fp8",
    "cutlass_scaled_mm_supports_fp8",
    "cutlass_scaled_mm_supports_fp4",
    "cutlass_group_gemm_supported",
)
CAPABILITY = (9, 0)
MEMORY = 80 << 30


class Compiled(types.ModuleType):
    """A module that is compiled for CUDA; whoever calls one of its functions is told so."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def absent(*args: Any, **kwargs: Any) -> Any:
            raise RuntimeError(f"{self.__name__}.{name} is compiled for CUDA and absent here")

        return absent


def emulator() -> Any:
    """Make the CUDA platform the current one and return its class."""
    import torch

    for name in COMPILED:
        sys.modules[name] = Compiled(name)
    library = torch.library.Library("_C", "FRAGMENT")
    for name in QUESTIONS:
        library.define(f"{name}(int capability) -> bool")
        library.impl(name, lambda capability: False, "CompositeExplicitAutograd")

    from vllm import platforms

    from vllm_ascend_spec.platform.cuda import SpecCudaPlatform

    class Fake(SpecCudaPlatform):
        """What a driver would say."""

        _libraries = library  # an operator lives as long as its library

        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> Any:
            return platforms.interface.DeviceCapability(*CAPABILITY)

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return "a fake"

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:
            return MEMORY

    platforms._current_platform = Fake()
    pretend_to_be_found()
    return Fake


def pretend_to_be_found() -> None:
    """Let the device be a GPU with everything in its place."""
    from vllm_ascend_spec.devices import cuda, registry

    whole = dict.fromkeys(("host_problem", "import_problem"), lambda: None)
    found = replace(cuda.DEVICE, find=lambda: True, **whole)
    devices = {**registry.all_devices(), found.name: found}
    registry.all_devices = lambda: devices


def config(job: dict[str, Any]) -> dict[str, Any]:
    """Build an engine's whole configuration, as ``vllm serve`` does before it loads anything."""
    from vllm.config import vllm as module
    from vllm.engine.arg_utils import EngineArgs

    from vllm_ascend_spec.config.capture import draft_rows
    from vllm_ascend_spec.patches import v1_model_runner
    from vllm_ascend_spec.platform import cuda

    told: list[str] = []
    with (
        mock.patch.object(module, "HAS_TRITON", True),  # as with a driver
        mock.patch.object(cuda, "log_once", lambda level, message: told.append(message)),
        mock.patch.dict(os.environ, job.get("environment", {})),
    ):
        # Which loads our general plugin, and that applies the patch.
        arguments = EngineArgs(**job["arguments"])
        if not job.get("patch", True):
            v1_model_runner.revert()
        try:
            built = arguments.create_engine_config()
            uses_v2 = built.use_v2_model_runner
        except ValueError as error:
            return {"error": str(error)}
        finally:
            v1_model_runner.apply()
    compilation = built.compilation_config
    return {
        "uses_v2": uses_v2,
        "worker": built.parallel_config.worker_cls,
        "attention_backend": getattr(built.attention_config.backend, "name", None),
        "is_async": built.scheduler_config.async_scheduling,
        "cudagraph_mode": compilation.cudagraph_mode.name,
        "capture_sizes": compilation.cudagraph_capture_sizes,
        "draft_rows": {str(size): rows for size, rows in draft_rows(compilation).items()},
        "max_num_seqs": built.scheduler_config.max_num_seqs,
        "told": told,
    }


def classes(job: dict[str, Any]) -> dict[str, Any]:
    """Import everything that an engine with speculation imports, and name what it got."""
    from vllm_ascend_spec.platform import cuda as platform
    from vllm_ascend_spec.worker import cuda as worker

    module, _, name = platform.WORKER.rpartition(".")
    return {
        "worker": getattr(sys.modules[module], name) is worker.SpecGPUWorker,
        "runner": [cls.__name__ for cls in worker.SpecGPUModelRunner.__mro__],
        "platform": [cls.__name__ for cls in platform.SpecCudaPlatform.__mro__],
    }


def init_device(job: dict[str, Any]) -> dict[str, Any]:
    """Run vLLM's own ``Worker.init_device`` up to the runner that it builds, and name that."""
    import torch
    from vllm.v1.worker import gpu_model_runner, gpu_worker

    from vllm_ascend_spec.worker import cuda

    stock = gpu_model_runner.GPUModelRunner
    worker: Any = object.__new__(cuda.SpecGPUWorker)
    parallel = mock.MagicMock(assigned_physical_gpu_ids=None, enable_dbo=False)
    parallel.distributed_executor_backend = "ray"
    vars(worker).update(
        device_config=SimpleNamespace(device_type="cuda"),
        parallel_config=parallel,
        model_config=SimpleNamespace(dtype=torch.float32, seed=0),
        vllm_config=SimpleNamespace(
            parallel_config=parallel, speculative_config=None, is_mm_encoder_only=False
        ),
        cache_config=None,
        local_rank=0,
        rank=0,
        distributed_init_method="",
        use_v2_model_runner=job["uses_v2"],
    )
    silent = ("init_worker_distributed_environment", "MemorySnapshot", "request_memory")
    silent += ("init_workspace_manager", "report_usage_stats", "format_gib")
    built: list[str] = []
    init = lambda self, config, device: built.append(type(self).__name__)  # noqa: E731
    with (
        mock.patch.multiple(gpu_worker, **dict.fromkeys(silent, mock.MagicMock())),
        mock.patch.multiple(torch, accelerator=mock.MagicMock()),
        mock.patch.object(cuda.SpecGPUModelRunner, "__init__", init),
        mock.patch.object(gpu_worker.current_platform, "check_if_supports_dtype", create=True),
    ):
        torch.accelerator.device_count.return_value = 1
        try:
            worker.init_device()
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}
    return {"built": built, "is_undone": gpu_model_runner.GPUModelRunner is stock}


SCENARIOS = {scenario.__name__: scenario for scenario in (config, classes, init_device)}

if __name__ == "__main__":
    emulator()
    print(json.dumps([SCENARIOS[name](job) for name, job in json.loads(sys.stdin.read())]))
