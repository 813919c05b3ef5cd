"""The drafter of method mlp_speculator on every device; no model runner V1 has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_ascend_spec.methods.heads import weights
from vllm_ascend_spec.methods.heads.drafter import HeadsDrafter
from vllm_ascend_spec.methods.mlp_speculator.checkpoint import read_mlp_speculator
from vllm_ascend_spec.methods.mlp_speculator.heads import MlpHeads

if TYPE_CHECKING:
    from torch import nn


class MlpSpeculatorDrafter(HeadsDrafter):
    """Drafts the argmax of each stage, or samples one token from each."""

    def load_heads(self) -> nn.Module:
        """Return the stages with their weights, on the target's device and in its dtype."""
        return weights.load(self, read_mlp_speculator, lambda found: MlpHeads(found.sizes))
