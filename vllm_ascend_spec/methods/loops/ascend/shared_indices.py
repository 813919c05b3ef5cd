"""Sparse attention whose draft steps 2 to K read what step 1 has selected.

vLLM's option ``index_share_for_mtp_iteration``. The rows of step 1's selection that drafts are made
from are moved to the front, which is where draft steps 2 to K have one row per request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vllm.distributed.parallel_state import get_tp_group
from vllm_ascend.spec_decode.utils import compact_mtp_topk_indices
from vllm_ascend.utils import enable_dsa_cp

from vllm_ascend_spec.methods.loops.ascend.stock import StockProposer

if TYPE_CHECKING:
    import torch


class SharedIndicesMixin(StockProposer):
    """Mixin for subclasses of ``AscendSpecDecodeBaseProposer``; goes before it in the bases."""

    _lim_topk_compactors: Sequence[Any]

    def select_in_step_1(self) -> None:
        """Let the next pass select what its rows attend to."""
        if (layers := self._sharing_layers()) is not None:
            layers.set_skip_topk(False)

    def read_selection_of(
        self,
        rows: torch.Tensor,  # [num_reqs]
        num_input_tokens: int,
    ) -> None:
        """Let the passes after step 1 attend to what it has selected for these of its rows.

        Args:
            rows: int32 or int64, the rows that drafts are made from.
            num_input_tokens: number of step 1's rows, with padding.
        """
        if (layers := self._sharing_layers()) is None:
            return
        layers.set_skip_topk(True)
        if hasattr(layers, "compact_topk_indices"):
            compact_mtp_topk_indices(
                layers,
                rows,
                num_input_tokens,
                tp_group=get_tp_group() if enable_dsa_cp() else None,
                lim_topk_compactors=self._lim_topk_compactors,
            )

    def _sharing_layers(self) -> Any:
        """Return the draft's layers if they share a selection, else None."""
        layers = getattr(self.model, "model", None)
        shares = self._share_mtp_indices and hasattr(layers, "set_skip_topk")
        return layers if shares else None
