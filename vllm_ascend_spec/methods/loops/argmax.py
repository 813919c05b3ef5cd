"""The argmax of each row of a draft's logits."""

from __future__ import annotations

import functools

import torch

from vllm_ascend_spec.ops.verify_greedy import OP

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# For fewer logits PyTorch's argmax takes less time than calling one of our ops: measured with
# caches that the target's forward pass has emptied.
MANY = 1 << 15


def argmax(
    logits: torch.Tensor,  # [num_rows, vocab_size]
) -> torch.Tensor:
    """Return the argmax of each row, the first of equal ones.

    PyTorch's CPU argmax compares one logit at a time. Our CPU op for greedy verification compares
    sixteen, and returns the argmax of a request without drafts.

    Args:
        logits: logits of any float dtype.

    Returns:
        int64 [num_rows]. A row with a NaN yields some token of the vocabulary.
    """
    device = logits.device
    is_ours = device.type == "cpu" and logits.numel() >= MANY and logits.dtype in DTYPES
    if not is_ours or not _is_built():
        return logits.argmax(dim=-1)
    no_drafts = torch.empty(0, dtype=torch.int32)
    ends = torch.zeros(logits.shape[0], dtype=torch.int32)
    tokens, _ = OP.backend("cpu", device)(logits, no_drafts, ends, 0)
    return tokens[:, 0].long()


@functools.cache
def _is_built() -> bool:
    return OP.status("cpu")["cpu"] == "ready"
