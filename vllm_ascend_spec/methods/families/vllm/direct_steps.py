"""The steps of a draft that is called directly, on the CPU (``direct.py``): without buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from vllm_ascend_spec.log import get_logger
from vllm_ascend_spec.methods.families.own_loop import Picked
from vllm_ascend_spec.methods.families.vllm.host_inputs import (
    FirstPass,
    rotated,
    with_next_tokens,
)

if TYPE_CHECKING:
    from vllm.v1.attention.backend import CommonAttentionMetadata

    from vllm_ascend_spec.methods.families.sampling import DraftSampler
    from vllm_ascend_spec.methods.families.vllm.direct import DirectLlama
    from vllm_ascend_spec.methods.families.vllm.plan import StepPlan

logger = get_logger(__name__)


class DirectStepsMixin:
    """Part of the draft loop of vLLM's family.

    Attributes:
        direct: the draft, if it can be called directly.
    """

    direct: DirectLlama | None = None
    model: Any
    block_size: int
    max_model_len: int
    needs_extra_input_slots: bool
    step_metadata: Callable[[CommonAttentionMetadata, StepPlan, int], dict[str, Any]]
    pick: Callable[[torch.Tensor, DraftSampler | None], Picked]

    def find_direct(self) -> None:
        """See whether the draft can be called directly; a logged line says why not."""
        from vllm_ascend_spec.methods.families.vllm.direct import direct_of, problem_of

        found = problem_of(self.model)
        if found is None:
            self.direct = direct_of(self.model)
        else:
            logger.info("The draft runs through its modules, because of %s.", found)

    def inputs_on_host(
        self,
        read: FirstPass,
        next_token_ids: torch.Tensor,  # [num_reqs]
        metadata: CommonAttentionMetadata,
        num_rejected: torch.Tensor | None,  # [num_reqs]
    ) -> tuple[FirstPass, CommonAttentionMetadata]:
        """Return what the draft reads first, and what it attends to.

        Args:
            read: what the target read, its states, and the last accepted row of each request.
            next_token_ids: int32, what it sampled last.
            metadata: what the target attended to.
            num_rejected: int32, how many of the last tokens of a request were rejected.
        """
        # What a mend changes for the stock proposer's own preparation (compat/first_pass.py).
        if (mended := getattr(self, "metadata_of_first_pass", None)) is not None:
            metadata = mended(metadata)
        if self.needs_extra_input_slots:
            return with_next_tokens(
                read.token_ids,
                read.positions,
                next_token_ids,
                num_rejected,
                metadata,
                self.block_size,
                self.max_model_len,
            )
        return read._replace(token_ids=rotated(read.token_ids, next_token_ids, read.rows)), metadata

    def later_steps_directly(
        self,
        plan: StepPlan,
        metadata: CommonAttentionMetadata,
        hidden: torch.Tensor,  # [num_reqs, hidden_size]
        drafts: list[Picked],
        sampler: DraftSampler | None,
    ) -> None:
        """Run draft steps 2..K without modules, appending to ``drafts``."""
        assert self.direct is not None
        for step, positions in enumerate(plan.positions):
            per_layer = self.step_metadata(metadata, plan, step)
            tokens = drafts[-1][0].int()
            last, hidden = self.direct.forward(
                tokens, positions, hidden, per_layer, plan.slots[step]
            )
            drafts.append(self.pick(last, sampler))
