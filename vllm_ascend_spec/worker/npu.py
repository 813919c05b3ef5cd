"""Worker and runner of the NPU, on top of vllm-ascend's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from vllm_ascend.worker import worker as stock
from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

from vllm_ascend_spec.config.draft_window import window_of
from vllm_ascend_spec.methods.step import DraftStep
from vllm_ascend_spec.patches import registry as patches
from vllm_ascend_spec.patches.npu_draft_model_padding import PaddingOverride
from vllm_ascend_spec.upstream.limits import NO_TREES
from vllm_ascend_spec.upstream.scheduler import k_of
from vllm_ascend_spec.worker.drafter_injection import inject_drafter
from vllm_ascend_spec.worker.graphs_per_k import GraphsPerKMixin
from vllm_ascend_spec.worker.host_tokens import tokens_on_host
from vllm_ascend_spec.worker.runner import SpecRunnerMixin
from vllm_ascend_spec.worker.seeded_sampling import SeededSamplingMixin

if NO_TREES is None:
    from vllm_ascend_spec.worker.npu_trees import NpuTreesMixin
else:

    class NpuTreesMixin:  # type: ignore[no-redef]
        """Nothing: trees are refused with this version."""


if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.sample.metadata import SamplingMetadata
    from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

    from vllm_ascend_spec.methods.drafter import Drafter
    from vllm_ascend_spec.methods.step import Drafts


class SpecNPUModelRunner(
    NpuTreesMixin, SpecRunnerMixin, GraphsPerKMixin, PaddingOverride, NPUModelRunner
):
    """vllm-ascend's runner with our drafter and verifier."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device) -> None:
        # vLLM's part of __init__ builds no drafter; vllm-ascend's part builds it later.
        with inject_drafter(lambda: None, vllm_config):
            super().__init__(vllm_config, device)
        self.take_up_tiers()
        self.complete_spec_parts()

    def _get_drafter(self) -> Drafter:
        return self.create_drafter()

    def propose_draft_token_ids(  # noqa: PLR0913, PLR0917 - the signature is vllm-ascend's
        self,
        valid_sampled_token_ids: torch.Tensor | list[list[int]],  # [num_reqs, K+1] if a tensor
        sampling_metadata: SamplingMetadata,
        scheduler_output: SchedulerOutput,
        spec_decode_metadata: SpecDecodeMetadata | None,
        spec_decode_common_attn_metadata: Any,
        positions: torch.Tensor,  # [num_tokens]
        num_scheduled_tokens: int,
        hidden_states: torch.Tensor,  # [num_tokens, hidden_size]
        aux_hidden_states: list[torch.Tensor] | None = None,  # each [num_tokens, hidden_size]
        sample_hidden_states: torch.Tensor | None = None,  # [num_rows, hidden_size]
        target_model_batch_desc: Any = None,
    ) -> Drafts:
        """Draft for every request of the batch; the signature is vllm-ascend's."""

        def draft_by_stock() -> Drafts:
            return super(SpecNPUModelRunner, self).propose_draft_token_ids(
                valid_sampled_token_ids,
                sampling_metadata,
                scheduler_output,
                spec_decode_metadata,
                spec_decode_common_attn_metadata,
                positions,
                num_scheduled_tokens,
                hidden_states,
                aux_hidden_states,
                sample_hidden_states,
                target_model_batch_desc,
            )

        return self.draft(
            DraftStep(
                k=k_of(scheduler_output, self.num_spec_tokens),
                window=window_of(scheduler_output),
                sampled_token_ids=valid_sampled_token_ids,
                tokens_on_host=partial(tokens_on_host, valid_sampled_token_ids, self),
                batch=self.input_batch,
                # Bookkeeping comes first, except with pipeline parallelism, which is refused.
                batch_has_sampled=True,
                sampling=sampling_metadata,
                hidden_states=hidden_states,
                sample_hidden_states=sample_hidden_states,
                aux_hidden_states=aux_hidden_states,
                verification=spec_decode_metadata,
                attention=spec_decode_common_attn_metadata,
                slot_mappings=None,
                draft_by_stock=draft_by_stock,
            )
        )


class PlainNPUModelRunner(SeededSamplingMixin, NPUModelRunner):
    """vllm-ascend's runner without speculation, with our sampling of requests with a seed."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device) -> None:
        super().__init__(vllm_config, device)
        self.sample_without_speculation()


@contextmanager
def _our_runner(vllm_config: VllmConfig) -> Iterator[None]:
    # NPUWorker.init_device names its runner class as a module global and offers no other way in.
    theirs = stock.NPUModelRunner
    is_plain = vllm_config.speculative_config is None
    stock.NPUModelRunner = PlainNPUModelRunner if is_plain else SpecNPUModelRunner
    try:
        yield
    finally:
        stock.NPUModelRunner = theirs


class SpecNPUWorker(stock.NPUWorker):
    """vllm-ascend's worker, building our runner."""

    def init_device(self) -> None:
        """Do what vllm-ascend does, with our runner."""
        # Before a runner's __init__, which builds the logits processors that one patch extends.
        # Without speculation, too: with one patch more an engine's answers may be others.
        patches.apply("before_runner")
        patches.apply("npu")
        with _our_runner(self.vllm_config):
            super().init_device()
