"""Worker and runner of the NPU, on top of vllm-ascend's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm_ascend.worker import worker as stock
from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

from vllm_ascend_spec.compat import registry as compat
from vllm_ascend_spec.proposers.custom_class.npu import SpecNpuCustomClassProposer
from vllm_ascend_spec.worker.runner import SpecRunnerMixin


class SpecNPUModelRunner(SpecRunnerMixin, NPUModelRunner):
    """vllm-ascend's runner with our proposer and verifier."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device) -> None:
        # Before the stock __init__: it builds the logits processors that one mend widens.
        compat.apply("before_runner")
        compat.apply("npu")
        super().__init__(vllm_config, device)
        self.install_spec_parts()

    def _set_up_drafter(self) -> None:
        built = getattr(self, "drafter", None)
        super()._set_up_drafter()
        # vLLM's __init__ has built it, a person's class for instance, which is to exist once.
        self.drafter = built

    def _get_drafter(self) -> None:
        # vllm-ascend would build one of its own here, or refuse a method that ours allows.
        return None

    def propose_draft_token_ids(self, sampled_token_ids: Any, *args: Any, **kwargs: Any) -> Any:
        """Draft; vllm-ascend's runner knows every proposer but a person's own."""
        if not isinstance(self.drafter, SpecNpuCustomClassProposer):
            return super().propose_draft_token_ids(sampled_token_ids, *args, **kwargs)
        batch = self.input_batch
        return self.drafter.propose(
            sampled_token_ids, batch.num_tokens_no_spec, batch.token_ids_cpu
        )


@contextmanager
def _our_runner() -> Iterator[None]:
    # NPUWorker.init_device names its runner class as a module global and offers no other way in.
    theirs = stock.NPUModelRunner
    stock.NPUModelRunner = SpecNPUModelRunner
    try:
        yield
    finally:
        stock.NPUModelRunner = theirs


class SpecNPUWorker(stock.NPUWorker):
    """vllm-ascend's worker, building our runner."""

    def init_device(self) -> None:
        """Do what vllm-ascend does, with our runner."""
        with _our_runner():
            super().init_device()
