"""The drafter of method medusa, on every device.

vLLM 0.30 and vllm-ascend have one too (``MedusaProposer``, ``AscendMedusaProposer``), which wraps a
model that vLLM 0.33 no longer has. Ours loads the same checkpoints without that model, keeps the
biases of FasterDecoding's checkpoints, and can sample drafts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_ascend_spec.methods.heads import weights
from vllm_ascend_spec.methods.heads.drafter import HeadsDrafter
from vllm_ascend_spec.methods.medusa.checkpoint import read_medusa
from vllm_ascend_spec.methods.medusa.heads import MedusaHeads

if TYPE_CHECKING:
    from vllm_ascend_spec.checkpoint.architectures.medusa import MedusaSizes
    from vllm_ascend_spec.checkpoint.own_heads import HeadsCheckpoint


class MedusaDrafter(HeadsDrafter):
    """Drafts the argmax of each head, or samples one token from each."""

    def load_heads(self) -> MedusaHeads:
        """Return the heads with their weights, on the target's device and in its dtype."""
        heads = weights.load(self, read_medusa, make_heads)
        assert isinstance(heads, MedusaHeads)
        heads.leave_out_other_tokens()
        self.num_heads = len(heads.blocks)
        return heads


def make_heads(found: HeadsCheckpoint[MedusaSizes]) -> MedusaHeads:
    """Return the heads of a checkpoint without their weights."""
    sizes, places = found.sizes, found.places
    output = places["lm_head.weight" if sizes.shares_output else "lm_heads.0.weight"]
    biases = [name for name in places if name.endswith(".bias")]
    return MedusaHeads(sizes, biases, rows=output[0][1].shape[0])
