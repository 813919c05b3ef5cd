"""How much a draft model sees in a full graph on the NPU.

Why: a draft model reads the target's tokens and the newly sampled one, so each request is one
token longer than for the target. With FULL graphs vllm-ascend 0.30.0rc2
(vllm_ascend/spec_decode/llm_base_proposer.py:AscendSpecDecodeBaseProposer._propose) takes the
lengths from the runner instead, one short: every token of the first pass misses the key before it,
and drafts are worse.
How: the runner's lengths get the extra token where the proposer fits them to the graph.
Until: ``_propose`` fits the lengths that the first pass was prepared with; 0.30.0rc2 is the newest
release.
"""

from __future__ import annotations

from typing import Any

import torch

from vllm_ascend_spec.compat.registry import override


@override
class LengthsOverride:
    """Mix into ``AscendDraftModelProposer``, before it in the bases."""

    def _adjust_tensor(
        self: Any,
        tensor: torch.Tensor,  # [num_reqs, ...]
        desired_size: int,
    ) -> torch.Tensor:
        """Fit a tensor to the graph's number of requests; lengths of the runner grow by a token."""
        fitted: torch.Tensor = super()._adjust_tensor(tensor, desired_size)  # type: ignore[misc]
        runner = self.runner
        if tensor is not runner.seq_lens and tensor is not runner.optimistic_seq_lens_cpu:
            return fitted
        # Rows of padding have length 0 and keep it.
        return torch.where(fitted > 0, fitted + self.net_num_new_slots_per_request, fitted)
