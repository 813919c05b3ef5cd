"""Sampled drafts (``draft_sample_method="probabilistic"``); seeded requests repeat."""

from __future__ import annotations

import torch
from vllm.v1.sample.metadata import SamplingMetadata

# Any fixed odd constants do: they spread (seed, position) over the generator's 64-bit seeds.
_SEED_STRIDE = 0x9E3779B97F4A7C15
_POSITION_STRIDE = 0xD1B54A32D192ED03
_MASK = (1 << 63) - 1


def draft_seed(seed: int, position: int) -> int:
    """Return the seed of one draft of a request: a function of the request alone.

    vLLM's per-request generator cannot be used here: drafts are also made for requests whose
    tokens are then discarded (chunked prefill), which would make the stream depend on the batch.
    """
    return (seed * _SEED_STRIDE + (position + 1) * _POSITION_STRIDE) & _MASK


def sample_drafts(
    logits: torch.Tensor,  # [num_reqs, vocab_size]
    sampling: SamplingMetadata,
    positions: torch.Tensor,  # [num_reqs]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw one draft per request at its temperature; greedy requests take the argmax.

    Args:
        logits: the draft's logits.
        sampling: the requests' parameters; a request without a temperature is greedy.
        positions: int64, position each draft is for; seeds the draws of seeded requests.

    Returns:
        Draft token ids, int64 [num_reqs], and the distributions they were drawn from, float32
        [num_reqs, vocab_size].
    """
    assert sampling.temperature is not None
    greedy = sampling.temperature <= 0
    scale = sampling.temperature.masked_fill(greedy, 1.0)[:, None]
    probs = (logits.float() / scale).softmax(dim=-1)
    noise = torch.empty_like(probs).exponential_()
    for request, generator in sampling.generators.items():
        seed = draft_seed(generator.initial_seed(), int(positions[request]))
        own = torch.Generator(device=noise.device).manual_seed(seed)
        noise[request].exponential_(generator=own)
    # argmax of p / exponential noise is a draw from p (the Gumbel trick without logarithms).
    sampled = (probs / noise).argmax(dim=-1)
    return torch.where(greedy, logits.argmax(dim=-1), sampled), probs
