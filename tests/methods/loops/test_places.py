"""The place of a token in its request, whatever its M-RoPE position."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from vllm_ascend_spec.methods.loops.places import places_of


def test_places_are_counted_from_the_ends_of_requests() -> None:
    metadata = SimpleNamespace(
        # A prompt of three tokens, one token of a longer request, and the rest of a prompt.
        query_start_loc=torch.tensor([0, 3, 4, 6], dtype=torch.int32),
        # A buffer may be longer than the batch.
        seq_lens=torch.tensor([3, 9, 7, 99], dtype=torch.int32),
    )
    positions = torch.zeros((3, 6), dtype=torch.int64)
    places = places_of(metadata, positions)
    assert places.tolist() == [0, 1, 2, 8, 5, 6]
    assert places.dtype == torch.int64
    padded = places_of(metadata, torch.zeros((3, 8), dtype=torch.int32))
    assert padded.tolist()[:6] == places.tolist()
    assert padded.dtype == torch.int32
