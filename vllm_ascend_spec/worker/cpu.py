"""Worker and runner of the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vllm.v1.worker import cpu_worker
from vllm.v1.worker.cpu_model_runner import CPUModelRunner

from vllm_ascend_spec.worker.cpu_trees import CpuTreesMixin
from vllm_ascend_spec.worker.vllm_runner import VllmRunnerMixin


class SpecCPUModelRunner(CpuTreesMixin, VllmRunnerMixin, CPUModelRunner):
    """vLLM's CPU runner with our drafter and verifier."""

    patch_stages = ("cpu",)


@contextmanager
def _our_runner() -> Iterator[None]:
    # CPUWorker.init_device names its runner class as a module global and offers no other way in.
    stock = cpu_worker.CPUModelRunner
    cpu_worker.CPUModelRunner = SpecCPUModelRunner
    try:
        yield
    finally:
        cpu_worker.CPUModelRunner = stock


class SpecCPUWorker(cpu_worker.CPUWorker):
    """vLLM's CPU worker, building our runner."""

    def init_device(self) -> None:
        """Do what vLLM does, with our runner."""
        with _our_runner():
            super().init_device()
