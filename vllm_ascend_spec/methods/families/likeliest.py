"""The likeliest token of each row of a draft's logits."""

from __future__ import annotations

import functools

import torch

from vllm_ascend_spec.ops.verify_greedy import OP

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def likeliest(
    logits: torch.Tensor,  # [num_rows, vocab_size]
) -> torch.Tensor:
    """Return the likeliest token of each row, of equal ones the first.

    PyTorch's argmax on a CPU looks at one logit after the other. What verifies greedy requests
    there looks at sixteen, and returns the likeliest token of a request without drafts.

    Args:
        logits: of any float dtype.

    Returns:
        int64 [num_rows]. A row with a NaN yields some token of the vocabulary.
    """
    num_rows, device = logits.shape[0], logits.device
    if device.type != "cpu" or num_rows == 0 or logits.dtype not in DTYPES or not _is_built():
        return logits.argmax(dim=-1)
    no_drafts = torch.empty(0, dtype=torch.int32)
    tokens, _ = OP.backend("cpu", device)(
        logits, no_drafts, torch.zeros(num_rows, dtype=torch.int32), 0
    )
    return tokens[:, 0].long()


@functools.cache
def _is_built() -> bool:
    return OP.status("cpu")["cpu"] == "ready"
