"""How vLLM's runner calls a proposer with a draft model: since 0.30 K is the first argument."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_ascend_spec.upstream.ranges import vllm_is

if TYPE_CHECKING:
    import torch
    from vllm.v1.attention.backend import CommonAttentionMetadata
    from vllm.v1.sample.metadata import SamplingMetadata


class Inputs(NamedTuple):
    """Inputs of a proposer, in vLLM's argument order.

    Attributes:
        target_token_ids: int32 [num_tokens].
        target_positions: int64 [num_tokens].
        target_hidden_states: [num_tokens, hidden_size].
        next_token_ids: int32 [num_reqs], the token after which each request drafts.
        token_indices_to_sample: int32 [num_reqs], the rows to draft from; None for the last row of
            each request.
        common_attn_metadata: vLLM's metadata of the target's step.
        sampling_metadata: vLLM's sampling metadata.
        mm_embed_inputs: vLLM's embedding inputs of multimodal targets.
        num_rejected_tokens_gpu: int32 [num_reqs], or None.
        slot_mappings: vLLM's slot mappings, by layer.
    """

    target_token_ids: torch.Tensor
    target_positions: torch.Tensor
    target_hidden_states: torch.Tensor
    next_token_ids: torch.Tensor
    token_indices_to_sample: torch.Tensor | None
    common_attn_metadata: CommonAttentionMetadata
    sampling_metadata: SamplingMetadata
    mm_embed_inputs: Any = None
    num_rejected_tokens_gpu: torch.Tensor | None = None
    slot_mappings: Any = None


class ProposeMixin:
    """Mixin that must precede vLLM's ``SpecDecodeBaseProposer`` in the bases."""

    if vllm_is(">=0.30"):

        def propose(  # noqa: PLR0913, PLR0917 - the signature is vLLM's
            self,
            num_speculative_tokens: int,
            target_token_ids: torch.Tensor,  # [num_tokens]
            target_positions: torch.Tensor,  # [num_tokens]
            target_hidden_states: torch.Tensor,  # [num_tokens, hidden_size]
            next_token_ids: torch.Tensor,  # [num_reqs]
            token_indices_to_sample: torch.Tensor | None,  # [num_reqs]
            common_attn_metadata: CommonAttentionMetadata,
            sampling_metadata: SamplingMetadata,
            mm_embed_inputs: Any = None,
            num_rejected_tokens_gpu: torch.Tensor | None = None,  # [num_reqs]
            slot_mappings: Any = None,
        ) -> torch.Tensor:
            """Draft K tokens per request, int64 [num_reqs, K]; the signature is vLLM's."""
            inputs = Inputs(
                target_token_ids,
                target_positions,
                target_hidden_states,
                next_token_ids,
                token_indices_to_sample,
                common_attn_metadata,
                sampling_metadata,
                mm_embed_inputs,
                num_rejected_tokens_gpu,
                slot_mappings,
            )
            return self.propose_from(num_speculative_tokens, inputs)

        def propose_by_stock(self, k: int, inputs: Inputs) -> torch.Tensor:
            """Draft as vLLM does, int64 [num_reqs, k]."""
            return super().propose(k, *inputs)  # type: ignore[misc]

    else:
        speculative_config: Any
        use_heterogeneous_vocab = False

        def propose(self, *args: Any, **kwargs: Any) -> torch.Tensor:  # type: ignore[misc]
            """Draft K tokens per request, int64 [num_reqs, K], from :class:`Inputs`."""
            k = self.speculative_config.num_speculative_tokens
            return self.propose_from(k, Inputs(*args, **kwargs))

        def propose_by_stock(self, k: int, inputs: Inputs) -> torch.Tensor:
            """Draft as vLLM does, int64 [num_reqs, k]; vLLM 0.23 knows K itself."""
            return super().propose(*inputs)  # type: ignore[misc]

    def propose_from(self, k: int, inputs: Inputs) -> torch.Tensor:
        """Return the drafts, int64 [num_reqs, k]."""
        raise NotImplementedError
