"""The verifier: takes the place of vLLM's ``RejectionSampler`` in a V1 model runner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from vllm.v1.outputs import SamplerOutput
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.sampler import Sampler
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from vllm_ascend_spec.config.resolved import SpecConfig
from vllm_ascend_spec.ops import verify_greedy, verify_sample
from vllm_ascend_spec.verification.grammar import mask_logits
from vllm_ascend_spec.verification.logprobs import gather_logprobs
from vllm_ascend_spec.verification.rows import ProcessedLogits, process_rows
from vllm_ascend_spec.verification.synthetic import SyntheticAcceptance, join, rows_after
from vllm_ascend_spec.verification.uniforms import Uniforms, draw_uniforms

if TYPE_CHECKING:
    from vllm.config import VllmConfig


class SpecVerifier(nn.Module):
    """Verify the drafts of a batch with any sampling parameters.

    Greedy and sampled requests are verified in one call. Temperature, top-k, top-p and min-p are
    part of the op; penalties, bad words, allowed tokens, logit bias, min_tokens and logits
    processors are applied to the rows before it (``rows.py``, ``processors.py``). The runner has
    already applied structured output to the logits (``grammar.py``). With
    ``rejection_sample_method`` set to ``synthetic`` drafts are accepted at given rates instead, for
    benchmarks; that is not lossless.

    Args:
        sampler: vLLM's sampler of the same runner; applies penalties and gathers logprobs.
        vllm_config: configuration of the engine.
        speculation: the resolved speculation of the engine.
    """

    def __init__(self, sampler: Sampler, vllm_config: VllmConfig, speculation: SpecConfig) -> None:
        super().__init__()
        self.sampler = sampler
        self.backend = speculation.verify_backend
        self.rule = speculation.verify_rule
        self.synthetic = SyntheticAcceptance.from_config(vllm_config.speculative_config)
        self.max_k = speculation.max_k
        self.logprobs_mode = vllm_config.model_config.logprobs_mode

    def forward(
        self,
        metadata: SpecDecodeMetadata,
        draft_probs: torch.Tensor | None,  # [num_drafts, vocab_size]
        logits: torch.Tensor,  # [num_rows, vocab_size]
        sampling_metadata: SamplingMetadata,
    ) -> SamplerOutput:
        """Verify drafts; the signature is that of vLLM's ``RejectionSampler.forward``.

        Returns:
            ``sampled_token_ids``, int32 [num_reqs, max_draft_len + 1] padded with -1, and the
            logprobs of these tokens if a request wants them.
        """
        rows = process_rows(self.sampler, logits, metadata, sampling_metadata)
        tokens = self._verify(metadata, draft_probs, rows, sampling_metadata)
        logprobs = gather_logprobs(
            self.sampler, self.logprobs_mode, metadata, logits, rows, tokens, sampling_metadata
        )
        return SamplerOutput(sampled_token_ids=tokens, logprobs_tensors=logprobs)

    def mask_logits(
        self,
        logits: torch.Tensor,  # [num_rows, vocab_size]
        scheduler_output: Any,
        grammar_output: Any,
        req_ids: list[str],
    ) -> None:
        """Apply structured output's masks to ``logits`` in place; call before :meth:`forward`."""
        mask_logits(logits, scheduler_output, grammar_output, req_ids, self.backend)

    def _verify(
        self,
        metadata: SpecDecodeMetadata,
        draft_probs: torch.Tensor | None,  # [num_drafts, vocab_size]
        rows: ProcessedLogits,
        sampling: SamplingMetadata,
    ) -> torch.Tensor:
        if self.synthetic is not None:
            return self._verify_synthetic(self.synthetic, metadata, rows, sampling)
        drafts = (metadata.draft_token_ids, metadata.cu_num_draft_tokens, metadata.max_spec_len)
        if sampling.all_greedy or rows.temperature is None:
            return verify_greedy(rows.logits, *drafts, backend=self.backend)[0]
        uniforms = self._draw_uniforms(metadata, rows, sampling)
        return self._verify_sampled(rows.logits, drafts, draft_probs, rows, sampling, uniforms)

    def _draw_uniforms(
        self, metadata: SpecDecodeMetadata, rows: ProcessedLogits, sampling: SamplingMetadata
    ) -> Uniforms:
        counts, device = metadata.num_draft_tokens, rows.logits.device
        return draw_uniforms(counts, sampling.generators, device, self.max_k)

    def _verify_sampled(
        self,
        logits: torch.Tensor,  # [num_rows, vocab_size]
        drafts: tuple[torch.Tensor, torch.Tensor, int],  # [num_drafts], [num_reqs]
        draft_probs: torch.Tensor | None,  # [num_drafts, vocab_size]
        rows: ProcessedLogits,
        sampling: SamplingMetadata,
        uniforms: Uniforms,
    ) -> torch.Tensor:
        assert rows.temperature is not None
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
            rule=self.rule,
            backend=self.backend,
        )[0]

    def _verify_synthetic(
        self,
        synthetic: SyntheticAcceptance,
        metadata: SpecDecodeMetadata,
        rows: ProcessedLogits,
        sampling: SamplingMetadata,
    ) -> torch.Tensor:
        """Accept drafts at the given rates; the target gives the token after them, as usual."""
        uniforms = self._draw_uniforms(metadata, rows, sampling)
        num_accepted = synthetic.count_accepted(metadata, uniforms.accept)
        logits = rows.logits[rows_after(metadata, num_accepted)]
        none = metadata.draft_token_ids[:0]
        drafts = (none, torch.zeros_like(metadata.cu_num_draft_tokens), 0)
        if sampling.all_greedy or rows.temperature is None:
            last = verify_greedy(logits, *drafts, backend=self.backend)[0]
        else:
            alone = uniforms._replace(accept=uniforms.accept[:0])
            last = self._verify_sampled(logits, drafts, None, rows, sampling, alone)
        return join(metadata, num_accepted, last[:, 0])
