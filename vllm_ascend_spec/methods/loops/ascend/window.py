"""The window of the draft's attention on an NPU, in place of vllm-ascend's own.

vllm-ascend 0.30.0rc2 (``vllm_ascend/spec_decode/utils.py:SlidingWindowAdapter``) computes where the
window begins twice: from the lengths on the device for the block table, and from those on the host,
which its attention reads, for the lengths. With asynchronous scheduling the host counts drafts as
accepted before it knows, so the two may be a block apart; then the draft does not attend to the
last block of the text. Rows of a prompt longer than the window have no keys at all. Here the
lengths on the host decide for both, and prompts are read without a window.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from vllm_ascend.spec_decode.llm_base_proposer import AscendSpecDecodeBaseProposer

from vllm_ascend_spec.methods.loops.ascend.stock import StockProposer
from vllm_ascend_spec.methods.loops.window import without_first_blocks

if TYPE_CHECKING:
    from vllm_ascend_spec.methods.drafter import Runner
    from vllm_ascend_spec.methods.loops.window import DraftWindow

# Lengths on the host in vllm-ascend's metadata; its attention reads the first that is there.
OF_HOST = ("_seq_lens_cpu", "seq_lens_cpu", "seq_lens_cpu_upper_bound")


class AscendWindow:
    """Has the interface of vllm-ascend's ``SlidingWindowAdapter``, which its proposer calls.

    Args:
        proposer: vllm-ascend's proposer, with the draft loaded.

    Attributes:
        full_block_table: int32 [num_reqs, max_blocks], of the whole text; KV cache slots are
            computed from it.
        left_out: int32 [num_reqs] on the host, the tokens left out of the lengths there; None if
            nothing is.
    """

    full_block_table: torch.Tensor
    left_out: torch.Tensor | None

    def __init__(self, proposer: WindowMixin) -> None:
        self._proposer = proposer
        # Its attention reads the lengths on the device where drafts are made in one pass.
        self._reads_device = proposer.parallel_drafting

    def apply(self, metadata: Any) -> None:
        """Leave the text before the window out of the metadata of a pass, in place."""
        table = self.full_block_table = metadata.block_table_tensor
        self.left_out = None
        if self._proposer.window.size is None:
            return
        if self._reads_device and self._proposer.use_async_scheduling:
            left_out = self._left_out(metadata.seq_lens, metadata.query_start_loc)
        else:
            left_out = self._leave_out_on_host(metadata)
        metadata.seq_lens = less(metadata.seq_lens, left_out)
        rows = F.pad(left_out, (0, table.shape[0] - left_out.shape[0]))
        block_size = self._proposer.kernel_block_size
        metadata.block_table_tensor = without_first_blocks(table, rows, block_size)

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
        """Return the tokens left out, [num_reqs]; the lengths may have more rows of padding."""
        proposer, batch = self._proposer, self._proposer.runner.input_batch
        window, rows = proposer.window, batch.num_reqs
        if proposer.use_async_scheduling:
            # The lengths count rows that may be rejected, in this step and in the one before.
            texts, prompts = lengths[:rows] - window.most_rows - window.max_k, 0
        else:
            texts = torch.from_numpy(batch.num_tokens_no_spec[:rows] - 1).to(lengths.dtype)
            prompts = torch.from_numpy(batch.num_prompt_tokens[:rows].copy())
        return window.left_out(texts, starts[: rows + 1], prompts, proposer.kernel_block_size)


def less(
    lengths: torch.Tensor,  # [at least num_reqs]
    left_out: torch.Tensor,  # [num_reqs]
) -> torch.Tensor:
    """Return the lengths less what is left out; they may have more rows of padding."""
    shorter = lengths.clone()
    shorter[: left_out.shape[0]] -= left_out.to(lengths.dtype)
    return shorter


class WindowMixin(StockProposer):
    """Mixin for subclasses of ``AscendSpecDecodeBaseProposer``; goes before it in the bases."""

    runner: Runner
    window: DraftWindow
    chooses_window: bool
    draft_window_size: int | None
    sliding_window: AscendWindow | None

    def require_window_in_stock_loop(self, asked: int | str) -> None:
        """Do nothing: vllm-ascend's own loop calls our window, too."""

    # inspect has to report the signature and source of vllm-ascend's method.
    @wraps(AscendSpecDecodeBaseProposer.load_model, assigned=())
    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Load the draft as vllm-ascend does, and put our window in the place of its own."""
        super().load_model(*args, **kwargs)  # type: ignore[misc]
        if self.window.size is None and not self.chooses_window:
            return
        # vllm-ascend only asks whether there is one.
        self.draft_window_size = self.window.size or 0
        self.sliding_window = AscendWindow(self)
