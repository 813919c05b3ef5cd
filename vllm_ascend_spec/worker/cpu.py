"""Worker and runner of the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vllm.v1.worker import cpu_worker
from vllm.v1.worker.cpu_model_runner import CPUModelRunner

from vllm_ascend_spec.states.commit import commit_states
from vllm_ascend_spec.worker.vllm_runner import VllmRunnerMixin

if TYPE_CHECKING:
    import torch
    from vllm.v1.core.sched.output import SchedulerOutput


class SpecCPUModelRunner(VllmRunnerMixin, CPUModelRunner):
    """vLLM's CPU runner with our drafter and verifier."""

    patch_stages = ("cpu",)

    def _update_states_after_model_execute(
        self,
        output_token_ids: torch.Tensor,  # [num_reqs, K + 1], -1 behind the last accepted token
        scheduler_output: SchedulerOutput,
    ) -> None:
        """Do what vLLM does, and bring states that are no KV cache to where each step reads them.

        The signature is vLLM's.
        """
        super()._update_states_after_model_execute(output_token_ids, scheduler_output)
        if self.speculative_config is not None and self.model_config.is_hybrid:
            commit_states(self, len(output_token_ids))


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
