"""The random numbers of one verification."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Uniforms(NamedTuple):
    """Random numbers in [0, 1).

    Attributes:
        accept: float64 [num_drafts], decide acceptance.
        sample: float64 [num_reqs], draw each request's last token.
    """

    accept: torch.Tensor
    sample: torch.Tensor


def draw_uniforms(
    num_draft_tokens: list[int],
    generators: dict[int, torch.Generator],
    device: torch.device,
) -> Uniforms:
    """Draw what one verification consumes.

    A request with a seed draws from its own generator, so it repeats whatever runs beside it; it
    draws one number per draft and one more, in that order.

    Args:
        num_draft_tokens: drafts of each request.
        generators: generators of the requests that have a seed, by request index.
        device: where the numbers are wanted.
    """
    accept = torch.rand(sum(num_draft_tokens), dtype=torch.float64, device=device)
    sample = torch.rand(len(num_draft_tokens), dtype=torch.float64, device=device)
    if generators:
        start = 0
        for request, count in enumerate(num_draft_tokens):
            if (generator := generators.get(request)) is not None:
                own = torch.rand(count + 1, dtype=torch.float64, device=device, generator=generator)
                accept[start : start + count] = own[:count]
                sample[request] = own[count]
            start += count
    return Uniforms(accept, sample)
