"""Copy a step's tokens to the host, for drafters that read them there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def tokens_on_host(
    sampled: torch.Tensor | list[list[int]],  # [num_reqs, K+1] if a tensor
    runner: Any,
) -> list[list[int]]:
    """Return the tokens that a step sampled, by request.

    Args:
        sampled: those tokens; a tensor is int32, padded with -1, and also has a token for each
            unfinished prompt, which the runner discards.
        runner: model runner of vLLM or vllm-ascend.
    """
    if isinstance(sampled, list):
        return sampled
    goes_on = runner.discard_request_mask.np
    return [
        [] if goes_on[index] else [token for token in row if token >= 0]
        for index, row in enumerate(sampled.tolist())
    ]
