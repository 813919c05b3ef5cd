"""The verifier: takes the place of vLLM's ``RejectionSampler`` in a V1 model runner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from vllm.v1.outputs import SamplerOutput
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.sampler import Sampler
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from vllm_ascend_spec.config.schema import SpecOptions
from vllm_ascend_spec.ops import verify_greedy, verify_sample
from vllm_ascend_spec.verification.logprobs import gather_logprobs
from vllm_ascend_spec.verification.rows import Constrained, constrain_rows
from vllm_ascend_spec.verification.uniforms import draw_uniforms

if TYPE_CHECKING:
    from vllm.config import VllmConfig


class SpecVerifier(nn.Module):
    """Verify the drafts of a batch, whatever its requests ask for.

    Greedy and sampled requests are verified in one call. Temperature, top-k, top-p and min-p are
    part of the op; penalties, bad words, allowed tokens, logit bias, min_tokens and logits
    processors are applied to the rows before it (``rows.py``). Structured output has been applied
    to the logits by the runner already.

    Args:
        sampler: vLLM's sampler of the same runner; applies penalties and gathers logprobs.
        vllm_config: configuration of the engine.
        options: our own options.
    """

    def __init__(self, sampler: Sampler, vllm_config: VllmConfig, options: SpecOptions) -> None:
        super().__init__()
        self.sampler = sampler
        self.backend = options.verify_backend
        self.logprobs_mode = vllm_config.model_config.logprobs_mode

    def forward(
        self,
        metadata: SpecDecodeMetadata,
        draft_probs: torch.Tensor | None,  # [num_drafts, vocab_size]
        logits: torch.Tensor,  # [num_rows, vocab_size]
        sampling_metadata: SamplingMetadata,
    ) -> SamplerOutput:
        """Verify; the signature is that of vLLM's ``RejectionSampler.forward``.

        Returns:
            ``sampled_token_ids``, int32 [num_reqs, max_draft_len + 1] padded with -1, and the
            logprobs of these tokens if a request wants them.
        """
        rows = constrain_rows(self.sampler, logits, metadata, sampling_metadata)
        tokens = self._verify(metadata, draft_probs, rows, sampling_metadata)
        logprobs = gather_logprobs(
            self.sampler, self.logprobs_mode, metadata, logits, rows, tokens, sampling_metadata
        )
        return SamplerOutput(sampled_token_ids=tokens, logprobs_tensors=logprobs)

    def _verify(
        self,
        metadata: SpecDecodeMetadata,
        draft_probs: torch.Tensor | None,  # [num_drafts, vocab_size]
        rows: Constrained,
        sampling: SamplingMetadata,
    ) -> torch.Tensor:
        drafts = (metadata.draft_token_ids, metadata.cu_num_draft_tokens, metadata.max_spec_len)
        logits = rows.logits
        if sampling.all_greedy or rows.temperature is None:
            return verify_greedy(logits, *drafts, backend=self.backend)[0]
        uniforms = draw_uniforms(metadata.num_draft_tokens, sampling.generators, logits.device)
        return verify_sample(
            logits,
            *drafts,
            temperature=rows.temperature,
            # int32 in a batch of requests, int64 in vLLM's warm-up run.
            top_k=None if sampling.top_k is None else sampling.top_k.int(),
            top_p=sampling.top_p,
            min_p=rows.min_p,
            draft_probs=draft_probs,
            accept_uniform=uniforms.accept,
            sample_uniform=uniforms.sample,
            backend=self.backend,
        )[0]
