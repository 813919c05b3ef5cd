"""How much a draft model sees in a full graph on the NPU.

Why: a draft model reads the target's tokens and the newly sampled one, so each request is one token
longer than for the target. With FULL graphs vllm-ascend 0.30.0rc2
(vllm_ascend/spec_decode/llm_base_proposer.py:AscendSpecDecodeBaseProposer._propose) takes the
runner's lengths instead, which are one short: every token of draft step 1 misses the key before it,
and drafts are worse.
How: the extra token is added to the runner's lengths where the proposer fits them to the graph.
Until: ``_propose`` fits the lengths that draft step 1 was prepared with; 0.30.0rc2 is the newest
release.
"""

from __future__ import annotations

from typing import Any

import torch

from vllm_ascend_spec.patches.registry import override


@override
class LengthsOverride:
    """Mixin that must precede ``AscendDraftModelProposer`` in the bases."""

    def _adjust_tensor(
        self: Any,
        tensor: torch.Tensor,  # [num_reqs, ...]
        desired_size: int,
    ) -> torch.Tensor:
        """Fit a tensor to the graph's number of requests; add a token to the runner's lengths."""
        fitted: torch.Tensor = super()._adjust_tensor(tensor, desired_size)  # type: ignore[misc]
        runner = self.runner
        if tensor is not runner.seq_lens and tensor is not runner.optimistic_seq_lens_cpu:
            return fitted
        # Padding rows keep their length of 0.
        return torch.where(fitted > 0, fitted + self.net_num_new_slots_per_request, fitted)
