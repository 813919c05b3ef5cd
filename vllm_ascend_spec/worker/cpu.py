"""Worker and runner of the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from vllm.config import VllmConfig
from vllm.v1.worker import cpu_worker
from vllm.v1.worker.cpu_model_runner import CPUModelRunner

from vllm_ascend_spec.compat import registry as compat
from vllm_ascend_spec.worker.runner import SpecRunnerMixin


class SpecCPUModelRunner(SpecRunnerMixin, CPUModelRunner):
    """vLLM's CPU runner with our proposer and verifier."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device) -> None:
        # Before the stock __init__: it builds the logits processors that one mend widens.
        compat.apply("before_runner")
        compat.apply("cpu")
        super().__init__(vllm_config, device)
        self.install_spec_parts()

    def _postprocess_triton(self) -> None:
        super()._postprocess_triton()
        # After it: the stock method assigns some of the very globals that are mended.
        compat.apply("cpu_kernels")


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
