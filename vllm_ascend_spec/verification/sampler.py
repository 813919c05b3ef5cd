"""The verifier: takes the place of vLLM's ``RejectionSampler`` in a V1 model runner."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import torch
from torch import nn
from vllm.v1.outputs import SamplerOutput
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.sampler import Sampler
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from vllm_ascend_spec.config.resolved import SpecConfig
from vllm_ascend_spec.config.rules import NONE
from vllm_ascend_spec.config.schema import TOKEN
from vllm_ascend_spec.ops import verify_greedy, verify_sample, verify_seeded, verify_tree
from vllm_ascend_spec.ops.row_noise import RowNoise
from vllm_ascend_spec.verification.grammar import mask_logits
from vllm_ascend_spec.verification.logprobs import gather_logprobs
from vllm_ascend_spec.verification.rows import ProcessedLogits, process_requests, process_rows
from vllm_ascend_spec.verification.synthetic import SyntheticAcceptance, join, rows_after
from vllm_ascend_spec.verification.trees import BatchTrees, trees_of

if TYPE_CHECKING:
    from vllm.config import VllmConfig


class Drafts(NamedTuple):
    """The drafts of a batch, as the ops take them.

    Attributes:
        token_ids: int32 [num_drafts].
        ends: int32 [num_reqs], ``cu_num_draft_tokens``.
        longest: most drafts of a request.
        probs: float32 [num_drafts, vocab_size], what they were sampled from; None if one-hot.
    """

    token_ids: torch.Tensor
    ends: torch.Tensor
    longest: int
    probs: torch.Tensor | None


class Filters(TypedDict):
    """What keeps unlikely tokens out; each is [num_reqs] or None."""

    top_k: torch.Tensor | None
    top_p: torch.Tensor | None
    min_p: torch.Tensor | None


class SpecVerifier(nn.Module):
    """Verify the drafts of a batch with any sampling parameters.

    Requests with a seed are verified by samples that depend on the seed and the position alone,
    all others by the engine's rule. Temperature, top-k, top-p and min-p are part of the ops;
    penalties, bad words, allowed tokens, logit bias, min_tokens and logits
    processors are applied to the rows before it (``rows.py``, ``processors.py``). The runner has
    already applied structured output to the logits (``grammar.py``). With
    ``rejection_sample_method`` set to ``synthetic`` drafts are accepted at given rates instead, for
    benchmarks; that is not lossless.

    Args:
        sampler: vLLM's sampler of the same runner; applies penalties and gathers logprobs.
        vllm_config: configuration of the engine.
        speculation: the resolved speculation of the engine; None in an engine without.

    Attributes:
        noise: noise of the batch; the runner sets it before each call. None if no request that
            samples has a seed.
        speculates: whether the engine does.
        seeds_for: which sampled requests without a seed the runner gives one: ``none``, ``top_k``
            or ``all``.
    """

    noise: RowNoise | None = None

    def __init__(
        self, sampler: Sampler, vllm_config: VllmConfig, speculation: SpecConfig | None
    ) -> None:
        super().__init__()
        self.sampler = sampler
        self.backend = speculation.verify_backend if speculation else None
        self.rule = speculation.verify_rule if speculation else TOKEN
        self.speculates = speculation is not None
        self.seeds_for = speculation.seeds_for if speculation else NONE
        spec = vllm_config.speculative_config
        self.synthetic = SyntheticAcceptance.from_config(spec) if spec else None
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
        if self.speculates:
            rows = process_rows(self.sampler, logits, metadata, sampling_metadata)
        else:
            rows = process_requests(self.sampler, logits, sampling_metadata)
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
        drafts = Drafts(
            metadata.draft_token_ids,
            metadata.cu_num_draft_tokens,
            metadata.max_spec_len,
            draft_probs,
        )
        if (trees := trees_of(metadata)) is not None:
            return self._walk(trees, drafts, rows, sampling)
        return self._choose(rows.logits, drafts, rows, sampling, self.noise)

    def _walk(
        self, trees: BatchTrees, drafts: Drafts, rows: ProcessedLogits, sampling: SamplingMetadata
    ) -> torch.Tensor:
        """Sample along each request's tree; keep the rows that tokens were sampled from."""
        like, num_reqs = drafts.ends, drafts.ends.shape[0]
        nothing = torch.zeros(num_reqs, dtype=torch.int64, device=like.device)
        noise = self.noise or RowNoise(nothing, nothing, None)
        temperature = rows.temperature
        if sampling.all_greedy or temperature is None:
            temperature = nothing.float()
        tokens, _, trees.output_rows = verify_tree(
            rows.logits,
            *drafts[:3],
            parents=trees.parents,
            temperature=temperature,
            **self._filters(rows, sampling),
            seeds=noise.seeds,
            positions=noise.positions,
            backend=self.backend,
        )
        return tokens

    @staticmethod
    def _filters(rows: ProcessedLogits, sampling: SamplingMetadata) -> Filters:
        return Filters(
            # int32 in a batch of requests, int64 in vLLM's warm-up run.
            top_k=None if sampling.top_k is None else sampling.top_k.int(),
            top_p=sampling.top_p,
            min_p=rows.min_p,
        )

    def _choose(
        self,
        logits: torch.Tensor,  # [num_rows, vocab_size]
        drafts: Drafts,
        rows: ProcessedLogits,
        sampling: SamplingMetadata,
        noise: RowNoise | None,
    ) -> torch.Tensor:
        """Verify the drafts of each request by its rule."""
        temperature = rows.temperature
        if sampling.all_greedy or temperature is None:
            return verify_greedy(logits, *drafts[:3], backend=self.backend)[0]
        filters = self._filters(rows, sampling)
        if noise is None:
            return self._by_rule(logits, drafts, temperature, filters)
        tokens = verify_seeded(
            logits,
            *drafts[:3],
            temperature=noise.temperature_of_seeded(temperature),
            **filters,
            seeds=noise.seeds,
            positions=noise.positions,
            backend=self.backend,
        )[0]
        if noise.unseeded is None:
            return tokens
        others = self._by_rule(logits, drafts, noise.temperature_of_unseeded(temperature), filters)
        return torch.where(noise.unseeded[:, None], others, tokens)

    def _by_rule(
        self,
        logits: torch.Tensor,  # [num_rows, vocab_size]
        drafts: Drafts,
        temperature: torch.Tensor,  # [num_reqs]
        filters: Filters,
    ) -> torch.Tensor:
        """Verify the drafts of requests without a seed, by the token rule or the block rule."""
        num_drafts, num_reqs = drafts.token_ids.shape[0], temperature.shape[0]
        draw = partial(torch.rand, dtype=torch.float64, device=logits.device)
        return verify_sample(
            logits,
            *drafts[:3],
            temperature=temperature,
            **filters,
            draft_probs=drafts.probs,
            accept_uniform=draw(num_drafts),
            sample_uniform=draw(num_reqs),
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
        num_drafts = metadata.draft_token_ids.shape[0]
        uniforms = torch.rand(num_drafts, dtype=torch.float64, device=rows.logits.device)
        num_accepted = synthetic.count_accepted(metadata, uniforms)
        logits = rows.logits[rows_after(metadata, num_accepted)]
        none = torch.zeros_like(metadata.cu_num_draft_tokens)
        drafts = Drafts(metadata.draft_token_ids[:0], none, 0, None)
        noise = None if self.noise is None else self.noise.after(num_accepted)
        last = self._choose(logits, drafts, rows, sampling, noise)
        return join(metadata, num_accepted, last[:, 0])
