"""Sampled drafts (``draft_sample_method="probabilistic"``); seeded requests repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from vllm_ascend_spec.methods.loops.argmax import argmax
from vllm_ascend_spec.methods.loops.one_hot import make_one_hot, requests_with_grammar

if TYPE_CHECKING:
    from vllm.v1.sample.metadata import SamplingMetadata

    from vllm_ascend_spec.methods.drafter import Runner

_WORD = (1 << 32) - 1
_LONG = (1 << 64) - 1
# No step has that many drafts. A context longer than 2^24 tokens would repeat noise.
_OFFSETS = 256


def _mix64(value: int) -> int:
    """Return a well mixed 64-bit number, different for each value (SplitMix64, Steele 2014)."""
    value = (value + 0x9E3779B97F4A7C15) & _LONG
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _LONG
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _LONG
    return value ^ value >> 31


def _mix32(value: int) -> int:
    """Do the same with 32 bits (MurmurHash3's finaliser)."""
    value = (value ^ value >> 16) * 0x85EBCA6B & _WORD
    value = (value ^ value >> 13) * 0xC2B2AE35 & _WORD
    return value ^ value >> 16


def draft_seed(seed: int, first: int, offset: int) -> int:
    """Return the seed of the noise for one draft of a request.

    The draft's position alone is not a valid key: after a rejection the position is drafted again,
    and the block rule's decision has by then revealed something about the noise. Every step of a
    request starts at a higher position, so no pair (first, offset) occurs twice.

    Args:
        seed: the request's seed.
        first: position at which the step starts to draft.
        offset: index of the draft within the step, from 0 to 255.

    Returns:
        A 63-bit number. PyTorch's CPU generator uses only the low 32 bits, which differ between
        any two drafts of one request.
    """
    index = first * _OFFSETS + offset
    spread = _mix64(seed & _LONG)
    high = _mix64(spread ^ index) >> 33
    return high << 32 | _mix32((spread + index) & _WORD)


class DraftSampler:
    """Samples the drafts of one step; each :meth:`draw` samples the next draft of every request.

    vLLM's per-request generators cannot be used here: drafts are also made for requests whose
    tokens are then discarded (chunked prefill), which would make their streams depend on the batch.

    Args:
        sampling: the requests' sampling parameters. Requests with temperature 0 are greedy; those
            with a generator are reproducible.
        positions: int64, position at which each request starts to draft.
        one_hot: indices of requests that get the argmax token, as a one-hot distribution.
    """

    def __init__(
        self,
        sampling: SamplingMetadata,
        positions: torch.Tensor,  # [num_reqs]
        one_hot: Sequence[int] = (),
    ) -> None:
        assert sampling.temperature is not None
        self._greedy = sampling.temperature <= 0
        self._scale = sampling.temperature.masked_fill(self._greedy, 1.0)[:, None]
        self._generators = sampling.generators
        self._positions = positions
        self._one_hot = one_hot
        self._first: list[int] | None = None
        self._offset = 0

    def draw(
        self,
        logits: torch.Tensor,  # [num_reqs, vocab_size]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Sample one draft per request at its temperature; greedy requests take the argmax.

        Args:
            logits: the draft's logits.

        Returns:
            Draft token ids, int64 [num_reqs], and the distributions that they were sampled from,
            float32 [num_reqs, vocab_size].
        """
        probs = (logits.float() / self._scale).softmax(dim=-1)
        # argmax of p / exponential noise is a sample from p (the Gumbel trick without logarithms).
        sampled = argmax(probs / self._noise_like(probs))
        tokens = torch.where(self._greedy, argmax(logits), sampled)
        make_one_hot(self._one_hot, tokens, probs, logits)
        return tokens, probs

    def _noise_like(
        self,
        probs: torch.Tensor,  # [num_reqs, vocab_size]
    ) -> torch.Tensor:
        """Return the exponential noise for the next draft of every request."""
        noise = torch.empty_like(probs).exponential_()
        if self._generators:
            if self._first is None:  # only once per step, because it waits for the device
                self._first = self._positions.tolist()
            own = torch.Generator(device=noise.device)
            for request, generator in self._generators.items():
                seed = draft_seed(generator.initial_seed(), self._first[request], self._offset)
                noise[request].exponential_(generator=own.manual_seed(seed))
        self._offset += 1
        return noise


def make_draft_sampler(
    runner: Runner,
    sampling: SamplingMetadata,
    positions: torch.Tensor,  # [num_reqs]
) -> DraftSampler | None:
    """Return the sampler for the drafts of a step, or None if all requests are greedy."""
    if sampling.all_greedy:
        return None
    return DraftSampler(sampling, positions, requests_with_grammar(runner))
