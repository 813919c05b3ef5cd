"""The drafter of method extract_hidden_states, a mixin for vLLM's or vllm-ascend's proposer.

The proposer writes the states into a separate cache beside the target's keys and values; a
connector (``--kv-transfer-config``) takes them from there when a request is done.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

    from vllm_ascend_spec.methods.drafter import DrafterContext
    from vllm_ascend_spec.methods.step import Drafts, DraftStep


class KeepsHiddenStates:
    """Mixin for the method's stock proposers; goes before them in the bases.

    Attributes:
        drafts_to_the_end: True, since nothing is computed beyond the rows of the target.
    """

    drafts_to_the_end = True
    wants_aux_hidden_states = True

    @classmethod
    def create(cls, engine: DrafterContext) -> Self:
        """Build the drafter of an engine."""
        known = {
            "vllm_config": engine.vllm_config,
            "device": engine.device,
            "runner": engine.runner,  # vllm-ascend's proposer takes it, vLLM's does not
        }
        wanted = inspect.signature(cls).parameters
        return cls(**{name: value for name, value in known.items() if name in wanted})

    def warm_up(self) -> None:
        """Do nothing: the runner warms the model up."""

    def draft(self, step: DraftStep) -> Drafts:
        """Let the stock runner prepare the inputs; it calls the proposer with them."""
        return step.draft_by_stock()

    def take_last_draft_probs(self) -> torch.Tensor | None:
        """Return None: the placeholders are one-hot."""
        return None
