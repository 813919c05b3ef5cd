"""Sampled drafts (``draft_sample_method="probabilistic"``)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import torch

from vllm_ascend_spec.methods.loops.argmax import argmax
from vllm_ascend_spec.methods.loops.one_hot import (
    make_one_hot,
    requests_with_grammar,
    rows_of,
)
from vllm_ascend_spec.ops import verify_seeded

if TYPE_CHECKING:
    from vllm.v1.sample.metadata import SamplingMetadata

    from vllm_ascend_spec.methods.drafter import Runner
    from vllm_ascend_spec.ops.row_noise import RowNoise


class DraftSampler:
    """Samples the drafts of one step; each :meth:`draw` samples the next draft of every request.

    A request with a seed has its drafts sampled with the noise of the position that each draft is
    for, with which the verifier samples the target there. So both often sample the same token. A
    position that is drafted again after a rejection has the same noise again, which is right: the
    output is the target's sample, whatever the drafts are.

    For requests without a seed the noise is fresh in each step. The block rule needs that: its
    decisions reveal something about the noise of drafts that are made again.

    Args:
        sampling: the requests' sampling parameters. Requests with temperature 0 are greedy.
        noise: noise of the first drafts; None if no request that samples has a seed.
        one_hot: indices of requests that get the argmax token, as a one-hot distribution, if they
            have no seed.
        backend: backend of the op that samples with ``noise``; None for the best one.
    """

    def __init__(
        self,
        sampling: SamplingMetadata,
        noise: RowNoise | None = None,
        one_hot: Collection[int] = (),
        backend: str | None = None,
    ) -> None:
        assert sampling.temperature is not None
        self._temperature = sampling.temperature
        self._top_k, self._top_p = sampling.top_k, sampling.top_p
        self._noise = noise
        self._one_hot = rows_of(one_hot, sampling.temperature.device)
        self._backend = backend

    def draw(
        self,
        logits: torch.Tensor,  # [num_reqs, vocab_size]
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Sample one draft per request at its temperature; greedy requests take the argmax.

        Args:
            logits: the draft's logits.

        Returns:
            Draft token ids, int64 [num_reqs], and the distributions that they were sampled from,
            float32 [num_reqs, vocab_size]; None if no verifier needs them. Those of requests with
            a seed have no meaning.
        """
        if self._noise is None:
            return self._draw_fresh(logits)
        seeded = self._draw_seeded(logits, self._noise)
        unseeded = self._noise.unseeded
        self._noise = self._noise.after(1)
        if unseeded is None:
            return seeded, None
        fresh, probs = self._draw_fresh(logits)
        return torch.where(unseeded, fresh, seeded), probs

    def _draw_fresh(
        self,
        logits: torch.Tensor,  # [num_reqs, vocab_size]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Sample with fresh noise; return the distributions, too."""
        greedy = self._temperature <= 0
        scale = self._temperature.masked_fill(greedy, 1.0)[:, None]
        probs = (logits.float() / scale).softmax(dim=-1)
        # argmax of p / exponential noise is a sample from p (the Gumbel trick without logarithms).
        sampled = argmax(probs / torch.empty_like(probs).exponential_())
        tokens = torch.where(greedy, argmax(logits), sampled)
        make_one_hot(self._one_hot, tokens, probs, logits)
        return tokens, probs

    def _draw_seeded(
        self,
        logits: torch.Tensor,  # [num_reqs, vocab_size]
        noise: RowNoise,
    ) -> torch.Tensor:
        """Sample with the noise of seed and position, from what top-k and top-p leave.

        The target's sample is among the tokens that they leave of the target's distribution.
        """
        none = torch.zeros_like(noise.seeds, dtype=torch.int32)
        return verify_seeded(
            logits.contiguous(),
            none[:0],
            none,
            0,
            temperature=noise.temperature_of_seeded(self._temperature),
            top_k=None if self._top_k is None else self._top_k.int(),
            top_p=self._top_p,
            seeds=noise.seeds,
            positions=noise.positions,
            backend=self._backend,
        )[0][:, 0].long()


def make_draft_sampler(
    runner: Runner, sampling: SamplingMetadata, backend: str | None = None
) -> DraftSampler | None:
    """Return the sampler for the drafts of a step, or None if all requests are greedy."""
    if sampling.all_greedy:
        return None
    bound = requests_with_grammar(runner)
    return DraftSampler(sampling, runner.noise_of_drafts, bound, backend)
