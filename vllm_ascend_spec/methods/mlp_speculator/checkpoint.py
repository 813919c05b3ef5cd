"""Check whether a checkpoint is an MLP speculator for its target."""

from __future__ import annotations

from vllm_ascend_spec.checkpoint.architectures.mlp_speculator import MlpSizes, sizes_of
from vllm_ascend_spec.checkpoint.draft import Draft
from vllm_ascend_spec.checkpoint.own_heads import HeadsCheckpoint, read_heads


def check_mlp_speculator(draft: Draft) -> None:
    """Check an MLP speculator, against its target if there is one.

    Raises:
        CheckpointError: stating what was found and what is valid.
    """
    read_mlp_speculator(draft)


def read_mlp_speculator(draft: Draft) -> HeadsCheckpoint[MlpSizes]:
    """Check as :func:`check_mlp_speculator` does, and return the checkpoint."""
    return read_heads(draft, sizes_of, "vocab_size")
