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
    longest: int,
) -> Uniforms:
    """Draw what one verification consumes.

    A request with a seed draws from its own generator, so its output does not depend on the other
    requests. It draws ``longest + 1`` numbers in every step, the one for its last token first,
    however many drafts it has, because its number of drafts depends on other requests and on the
    prefix cache. For example, a request with one prompt token left to compute gets drafts of -1
    from vLLM as padding, or none. Its tokens must be the same either way.

    Args:
        num_draft_tokens: drafts of each request.
        generators: generators of the requests that have a seed, by request index.
        device: device of the numbers.
        longest: most drafts that a request of this engine can have.
    """
    accept = torch.rand(sum(num_draft_tokens), dtype=torch.float64, device=device)
    sample = torch.rand(len(num_draft_tokens), dtype=torch.float64, device=device)
    if generators:
        start = 0
        for request, count in enumerate(num_draft_tokens):
            assert count <= longest, f"{count} drafts in an engine of {longest}"
            if (generator := generators.get(request)) is not None:
                own = torch.rand(
                    longest + 1, dtype=torch.float64, device=device, generator=generator
                )
                sample[request] = own[0]
                accept[start : start + count] = own[1 : count + 1]
            start += count
    return Uniforms(accept, sample)
