"""Check whether a checkpoint has Medusa heads for its target."""

from __future__ import annotations

from vllm_ascend_spec.checkpoint.architectures.medusa import MedusaSizes, sizes_of
from vllm_ascend_spec.checkpoint.draft import Draft
from vllm_ascend_spec.checkpoint.own_heads import HeadsCheckpoint, read_heads


def check_medusa(draft: Draft) -> None:
    """Check Medusa's heads, against their target if there is one.

    Raises:
        CheckpointError: stating what was found and what is valid.
    """
    read_medusa(draft)


def read_medusa(draft: Draft) -> HeadsCheckpoint[MedusaSizes]:
    """Check Medusa's heads as :func:`check_medusa` does, and return the checkpoint."""
    return read_heads(draft, sizes_of, "vocab_size", "hidden_size")
