"""Worker and runner of an NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vllm.v1.worker import gpu_model_runner, gpu_worker

from vllm_ascend_spec.errors import PlatformError
from vllm_ascend_spec.worker.cuda_trees import CudaTreesMixin
from vllm_ascend_spec.worker.vllm_runner import VllmRunnerMixin


class SpecGPUModelRunner(CudaTreesMixin, VllmRunnerMixin, gpu_model_runner.GPUModelRunner):
    """vLLM's GPU runner (V1) with our drafter and verifier."""


@contextmanager
def _our_runner() -> Iterator[None]:
    # Worker.init_device imports its runner class by name and offers no other way in.
    stock = gpu_model_runner.GPUModelRunner
    gpu_model_runner.GPUModelRunner = SpecGPUModelRunner
    try:
        yield
    finally:
        gpu_model_runner.GPUModelRunner = stock


class SpecGPUWorker(gpu_worker.Worker):
    """vLLM's GPU worker, building our runner."""

    def init_device(self) -> None:
        """Do what vLLM does, with our runner.

        Raises:
            PlatformError: vLLM is about to build model runner V2, which is not ours.
        """
        if self.use_v2_model_runner:
            raise PlatformError(
                f"{type(self).__name__} builds model runner V1, but this engine uses V2. "
                "Remedy: leave --worker-cls out; the platform names the worker that goes with it."
            )
        with _our_runner():
            super().init_device()
