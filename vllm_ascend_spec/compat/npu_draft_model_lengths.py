"""How much a draft model sees in a full graph on the NPU.

Why: a draft model reads the target's tokens and the newly sampled one, so each request is one
token longer than for the target. With FULL graphs ``AscendSpecDecodeBaseProposer._propose``
(spec_decode/llm_base_proposer.py:1152) of vllm-ascend 0.30.0rc2 takes the lengths from the runner
instead, one short: every token of the first pass misses the key before it, and drafts are worse.
How: the runner's lengths get the extra token where the proposer fits them to the graph.
Until: ``_propose`` fits the lengths that the first pass was prepared with.
"""

from __future__ import annotations

from typing import Any

import torch

from vllm_ascend_spec.compat.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the mend once."""
    if _patches:
        return
    from vllm_ascend.spec_decode.draft_proposer import AscendDraftModelProposer

    stock = AscendDraftModelProposer._adjust_tensor

    def _adjust_tensor(self: Any, tensor: Any, desired_size: int) -> Any:
        fitted = stock(self, tensor, desired_size)
        runner = self.runner
        if tensor is not runner.seq_lens and tensor is not runner.optimistic_seq_lens_cpu:
            return fitted
        # Rows of padding have length 0 and keep it.
        return torch.where(fitted > 0, fitted + self.net_num_new_slots_per_request, fitted)

    _patches.set(AscendDraftModelProposer, "_adjust_tensor", _adjust_tensor)
