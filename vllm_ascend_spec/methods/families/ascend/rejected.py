"""Rejected tokens are taken out of the lengths on the host, which later draft steps read."""

from __future__ import annotations

from typing import Any

import torch
from vllm.distributed.parallel_state import get_pp_group


def without_rejected(proposer: Any, metadata: Any, num_reqs: int) -> Any:
    """Return vllm-ascend's metadata with the lengths on the host cut to what was accepted.

    vllm-ascend takes the rejected tokens out of the lengths on the device, but its attention reads
    those on the host: drafts would see rejected tokens, and after them whatever was in the cache
    before. They would be worse, and a seeded request would not repeat. With asynchronous scheduling
    the host does not know yet what was accepted: there they stay as they are.

    Args:
        proposer: vllm-ascend's.
        metadata: of the first draft step; it is left as it is.
        num_reqs: requests of the batch.
    """
    if proposer.use_async_scheduling or get_pp_group().world_size > 1:
        return metadata
    known = torch.from_numpy(proposer.runner.input_batch.num_tokens_no_spec[:num_reqs].copy())
    # The token sampled last is an input of the first pass of a draft model only.
    known += proposer.net_num_new_slots_per_request - 1
    metadata = proposer.shallow_copy_metadata(metadata)
    for name in ("seq_lens_cpu", "_seq_lens_cpu"):
        if (lengths := getattr(metadata, name)) is not None:
            lengths = lengths.clone()
            lengths[:num_reqs] = torch.minimum(lengths[:num_reqs], known.to(lengths.dtype))
            setattr(metadata, name, lengths)
    return metadata
