"""The trees of a batch's drafts, as the verifier gets them and as it leaves them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import torch

from vllm_ascend_spec.ops.send import send_list

if TYPE_CHECKING:
    from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

# Attribute of vLLM's metadata of the drafts.
ATTRIBUTE = "ascend_spec_trees"


@dataclass
class BatchTrees:
    """Where each draft of a batch hangs.

    Attributes:
        by_request: parents of each request's drafts, -1 for those that follow the text.
        parents: the same as int32 [num_drafts], on the device.
        output_rows: int32 [num_reqs, max_draft_len + 1], the row of its request that each token was
            sampled from, padded with -1; set by the verifier.
    """

    by_request: Sequence[Sequence[int]]
    parents: torch.Tensor
    output_rows: torch.Tensor | None = None

    @classmethod
    def of(cls, by_request: Sequence[Sequence[int]], device: torch.device) -> BatchTrees:
        """Return the trees of a batch, with their parents on a device."""
        flat = list(chain.from_iterable(by_request))
        return cls(by_request, send_list(flat, torch.int32, device))


def attach(metadata: SpecDecodeMetadata, trees: BatchTrees) -> None:
    """Say that the drafts of a batch are trees."""
    setattr(metadata, ATTRIBUTE, trees)


def trees_of(metadata: SpecDecodeMetadata | None) -> BatchTrees | None:
    """Return the trees of a batch; None if its drafts are chains."""
    return getattr(metadata, ATTRIBUTE, None)
