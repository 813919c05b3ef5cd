"""The window of the draft's attention on an NPU, in place of vllm-ascend's own.

vllm-ascend 0.30.0rc2 (``vllm_ascend/spec_decode/utils.py:SlidingWindowAdapter``) computes where the
window begins twice: from the lengths on the device for the block table, and from those on the host,
which its attention reads, for the lengths. With asynchronous scheduling the host counts drafts as
accepted before it knows, so the two may be a block apart; then the draft does not attend to the
last block of the text. Rows of a prompt longer than the window have no keys at all. Here the
lengths that the attention reads decide, and prompts are read without a window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from vllm_ascend_spec.methods.loops.ascend.stock import StockProposer
from vllm_ascend_spec.methods.loops.window import DraftWindow, without_first_blocks

if TYPE_CHECKING:
    from torch import nn

# Lengths on the host in vllm-ascend's metadata; its attention reads the first that is there.
OF_HOST = ("_seq_lens_cpu", "seq_lens_cpu", "seq_lens_cpu_upper_bound")


class AscendWindow:
    """Has the interface of vllm-ascend's ``SlidingWindowAdapter``, which its proposer calls.

    Args:
        window: the window.
        block_size: tokens per block of the block table.
        reads_device: whether the attention reads the lengths on the device, as it does for drafts
            that are made in one pass.

    Attributes:
        full_block_table: int32 [num_reqs, max_blocks], of the whole text; KV cache slots are
            computed from it.
        left_out: int32 [num_reqs] on the host, the tokens left out of the lengths there; None for
            the whole text.
    """

    full_block_table: torch.Tensor
    left_out: torch.Tensor | None

    def __init__(self, window: DraftWindow, block_size: int, *, reads_device: bool) -> None:
        self._window, self._block_size, self._reads_device = window, block_size, reads_device

    def apply(self, metadata: Any) -> None:
        """Leave the text before the window out of the metadata of a pass, in place."""
        table = self.full_block_table = metadata.block_table_tensor
        self.left_out = None
        if self._window.size is None:
            return
        if self._reads_device:
            left_out = self._left_out(metadata.seq_lens, metadata.query_start_loc)
        else:
            left_out = self._leave_out_on_host(metadata)
        metadata.seq_lens = less(metadata.seq_lens, left_out)
        rows = left_out[: table.shape[0]]
        metadata.block_table_tensor = without_first_blocks(table, rows, self._block_size)

    def _leave_out_on_host(self, metadata: Any) -> torch.Tensor:
        """Shorten the lengths on the host; return what is left out, on the device."""
        found = {name: getattr(metadata, name, None) for name in OF_HOST}
        lengths = {name: value for name, value in found.items() if value is not None}
        first = next(iter(lengths.values()))
        self.left_out = self._left_out(first, metadata.query_start_loc_cpu)
        for name, value in lengths.items():
            setattr(metadata, name, less(value, self.left_out))
        return self.left_out.pin_memory().to(metadata.seq_lens.device, non_blocking=True)

    def _left_out(
        self,
        lengths: torch.Tensor,  # [num_reqs]
        starts: torch.Tensor,  # [num_reqs + 1]
    ) -> torch.Tensor:
        """Return the tokens left out, [num_reqs]; both may have rows of padding."""
        window, rows = self._window, min(lengths.shape[0], starts.shape[0] - 1)
        # The lengths count rows that may be rejected, in this step and in the one before.
        sure = lengths[:rows] - window.most_rows - window.max_k
        left_out = window.left_out_of_rows(sure, starts[: rows + 1], self._block_size)
        assert left_out is not None
        return F.pad(left_out, (0, lengths.shape[0] - rows))


def less(
    lengths: torch.Tensor,  # [any]
    left_out: torch.Tensor,  # [num_reqs]
) -> torch.Tensor:
    """Return the lengths less what is left out; either may have more rows of padding."""
    shorter, rows = lengths.clone(), min(lengths.shape[0], left_out.shape[0])
    shorter[:rows] -= left_out[:rows].to(lengths.dtype)
    return shorter


class WindowMixin(StockProposer):
    """Gives vllm-ascend's proposer our window; goes before it in the bases."""

    window: DraftWindow
    chooses_window: bool
    draft_window_size: int | None
    sliding_window: AscendWindow | None

    def load_model(self, model: nn.Module) -> None:
        """Load the draft; the signature is vllm-ascend's."""
        super().load_model(model)  # type: ignore[misc]
        if self.window.size is None and not self.chooses_window:
            return
        # vllm-ascend asks whether it is there, and for nothing else.
        self.draft_window_size = self.window.size or 0
        self.sliding_window = AscendWindow(
            self.window, self.kernel_block_size, reads_device=self.parallel_drafting
        )
