"""Our parts in vLLM's runner that CPU and CUDA share."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.config.draft_window import window_of
from vllm_ascend_spec.methods.step import DraftStep
from vllm_ascend_spec.patches import registry as patches
from vllm_ascend_spec.upstream.scheduler import k_of
from vllm_ascend_spec.worker.drafter_injection import inject_drafter
from vllm_ascend_spec.worker.host_tokens import tokens_on_host
from vllm_ascend_spec.worker.runner import SpecRunnerMixin

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.v1.attention.backend import CommonAttentionMetadata
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.sample.metadata import SamplingMetadata
    from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

    from vllm_ascend_spec.methods.step import Drafts


class VllmRunnerMixin(SpecRunnerMixin):
    """Mixin for vLLM's ``GPUModelRunner`` or ``CPUModelRunner``; must come before it in the bases.

    Attributes:
        patch_stages: stages of ``patches/`` that this device needs.
    """

    patch_stages: tuple[str, ...] = ()

    def __init__(self, vllm_config: VllmConfig, device: torch.device) -> None:
        # Before the stock __init__, which builds the logits processors that one patch extends.
        for stage in ("before_runner", *self.patch_stages):
            patches.apply(stage)
        with inject_drafter(self.create_drafter, vllm_config):
            super().__init__(vllm_config, device)  # type: ignore[call-arg]
        self.complete_spec_parts()

    def propose_draft_token_ids(  # noqa: PLR0913, PLR0917 - the signature is vLLM's
        self,
        scheduler_output: SchedulerOutput,
        sampled_token_ids: torch.Tensor | list[list[int]],  # [num_reqs, K+1] if a tensor
        sampling_metadata: SamplingMetadata,
        hidden_states: torch.Tensor,  # [num_tokens, hidden_size]
        sample_hidden_states: torch.Tensor,  # [num_rows, hidden_size]
        aux_hidden_states: list[torch.Tensor] | None,  # each [num_tokens, hidden_size]
        spec_decode_metadata: SpecDecodeMetadata | None,
        common_attn_metadata: CommonAttentionMetadata,
        slot_mappings: Any,
    ) -> Drafts:
        """Draft for every request of the batch; the signature is vLLM's."""

        def draft_by_stock() -> Drafts:
            return super(VllmRunnerMixin, self).propose_draft_token_ids(  # type: ignore[misc]
                scheduler_output,
                sampled_token_ids,
                sampling_metadata,
                hidden_states,
                sample_hidden_states,
                aux_hidden_states,
                spec_decode_metadata,
                common_attn_metadata,
                slot_mappings,
            )

        return self.draft(
            DraftStep(
                k=k_of(scheduler_output, self.num_spec_tokens),
                window=window_of(scheduler_output),
                sampled_token_ids=sampled_token_ids,
                tokens_on_host=partial(tokens_on_host, sampled_token_ids, self),
                batch=self.input_batch,
                # vLLM's runner drafts before bookkeeping if tokens stay on the device.
                batch_has_sampled=isinstance(sampled_token_ids, list),
                sampling=sampling_metadata,
                hidden_states=hidden_states,
                sample_hidden_states=sample_hidden_states,
                aux_hidden_states=aux_hidden_states,
                verification=spec_decode_metadata,
                attention=common_attn_metadata,
                slot_mappings=slot_mappings,
                draft_by_stock=draft_by_stock,
            )
        )
