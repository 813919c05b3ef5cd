"""Remove rejected tokens from the lengths on the host, which draft steps 2 to K read."""

from __future__ import annotations

from typing import Any

import torch
from vllm.distributed.parallel_state import get_pp_group


def without_rejected(proposer: Any, metadata: Any, num_reqs: int) -> Any:
    """Return vllm-ascend's metadata with the lengths on the host reduced to accepted tokens.

    vllm-ascend subtracts rejected tokens from the lengths on the device, but its attention reads
    those on the host: drafts would attend to rejected tokens and to stale cache entries after
    them. Acceptance would drop. With asynchronous scheduling the host does not know yet what was
    accepted, so the lengths stay unchanged.

    Args:
        proposer: vllm-ascend's proposer.
        metadata: metadata of draft step 1; it is not modified.
        num_reqs: number of requests in the batch.
    """
    if proposer.use_async_scheduling or get_pp_group().world_size > 1:
        return metadata
    known = torch.from_numpy(proposer.runner.input_batch.num_tokens_no_spec[:num_reqs].copy())
    # Only a draft model reads the token sampled last in draft step 1.
    known += proposer.net_num_new_slots_per_request - 1
    window = getattr(proposer, "sliding_window", None)
    if window is not None and window.left_out is not None:
        # The lengths below are those within the window.
        known -= window.left_out[:num_reqs].to(known.dtype)
    metadata = proposer.shallow_copy_metadata(metadata)
    for name in ("seq_lens_cpu", "_seq_lens_cpu"):
        if (lengths := getattr(metadata, name)) is not None:
            lengths = lengths.clone()
            lengths[:num_reqs] = torch.minimum(lengths[:num_reqs], known.to(lengths.dtype))
            setattr(metadata, name, lengths)
    return metadata
