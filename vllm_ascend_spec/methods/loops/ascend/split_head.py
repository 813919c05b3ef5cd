"""An output layer that data-parallel replicas share, for the draft.

vllm-ascend's ``finegrained_tp_config.lmhead_tensor_parallel_size``. Replicas gather the rows of all
of them (``vllm_ascend/ops/vocab_parallel_embedding.py:AscendLogitsProcessor``), so each has to
bring as many, whatever its batch is. vllm-ascend's own loop pads them likewise
(``AscendSpecDecodeBaseProposer._run_merged_draft``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from vllm_ascend.utils import lmhead_tp_enable

from vllm_ascend_spec.methods.loops.ascend.stock import StockProposer

if TYPE_CHECKING:
    from vllm.config import VllmConfig


class SplitHeadMixin(StockProposer):
    """Mixin for subclasses of ``AscendSpecDecodeBaseProposer``; goes before it in the bases."""

    runner: Any
    vllm_config: VllmConfig

    def apply_head(
        self,
        head: Callable[[torch.Tensor], torch.Tensor],
        hidden: torch.Tensor,  # [num_rows, hidden_size]
    ) -> torch.Tensor:
        """Return the logits of some rows, [num_rows, vocab_size]."""
        if not lmhead_tp_enable():
            return head(hidden)
        num_rows = hidden.shape[0]
        most = self.vllm_config.scheduler_config.max_num_seqs * self.runner.uniform_decode_query_len
        return head(F.pad(hidden, (0, 0, 0, max(most - num_rows, 0))))[:num_rows]
