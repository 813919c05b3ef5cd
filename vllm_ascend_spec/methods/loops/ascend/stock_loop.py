"""vllm-ascend 0.23's draft loop, with the additions that this package needs.

That version prepares draft steps 2 to K in one function, without the hooks through which our loop
sets their number of rows (``loop.py``). So its own loop runs; drafts are greedy, K is fixed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from vllm.config import CUDAGraphMode
from vllm.forward_context import get_forward_context, is_forward_context_available

from vllm_ascend_spec.methods.loops.ascend.limits import require_possible
from vllm_ascend_spec.methods.loops.ascend.rejected import without_rejected
from vllm_ascend_spec.methods.loops.base import DraftLoopMixin

if TYPE_CHECKING:
    from vllm_ascend_spec.methods.drafter import Runner


class AscendStockLoop(DraftLoopMixin):
    """Mixin for subclasses of ``AscendSpecDecodeBaseProposer``; goes before it in the bases."""

    stock_name = "vllm-ascend"
    runner: Runner
    net_num_new_slots_per_request: int

    def require_possible(self) -> None:
        """Refuse options that do not fit this engine's graph mode.

        Raises:
            ConfigError: naming the option and the reason.
        """
        require_possible(self)

    def loop_problems(self) -> Mapping[str, bool]:
        """Return this version as the one reason why our loop cannot be used."""
        return {"vllm-ascend 0.23": True}

    def _propose(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Draft as vllm-ascend does, int64 [num_reqs, K]; the signature is its own."""
        # For a replay, which skips :meth:`_run_merged_draft`; a real run overwrites it there.
        self.last_graph = CUDAGraphMode.FULL.name
        return super()._propose(*args, **kwargs)  # type: ignore[misc]

    def _run_merged_draft(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Run all draft steps, int64 [num_reqs, K], or record them; the signature is its own."""
        if is_forward_context_available():
            self.last_graph = get_forward_context().cudagraph_runtime_mode.name
        return super()._run_merged_draft(*args, **kwargs)  # type: ignore[misc]

    def attn_update_stack_num_spec_norm(
        self,
        draft_index: int,
        old_attn_metadata: Any,
        old_common_metadata: Any,
        batch_size: int,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[Any, Any]:
        """Build the metadata of draft steps 2 to K; the first parameters are vllm-ascend's."""
        if draft_index == 1:
            old_common_metadata = without_rejected(self, old_common_metadata, batch_size)
        return super().attn_update_stack_num_spec_norm(  # type: ignore[misc]
            draft_index, old_attn_metadata, old_common_metadata, batch_size, *args, **kwargs
        )
