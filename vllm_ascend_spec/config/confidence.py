"""Confidences of drafts: which engines use them, and how they get to the scheduler.

A confidence is the draft model's estimate that a draft is accepted if all before it are. The worker
sends them along with the drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.config.draft_context import may_be_ragged
from vllm_ascend_spec.config.resolved import speculation_of
from vllm_ascend_spec.config.schema import ADAPTIVE

if TYPE_CHECKING:
    from vllm.config import VllmConfig

# Attribute of vLLM's DraftTokenIds. Pickling keeps it.
ATTRIBUTE = "ascend_spec_confidences"


def uses_confidences(vllm_config: VllmConfig) -> bool:
    """Tell whether the scheduler can choose by confidence how many drafts a request verifies.

    An asynchronous scheduler has planned a step's rows before the drafts are made, and a full
    graph has equally many rows for each request.
    """
    is_ahead = vllm_config.scheduler_config.async_scheduling
    is_adaptive = speculation_of(vllm_config).draft_length == ADAPTIVE
    return is_adaptive and not is_ahead and may_be_ragged(vllm_config)


def attach_confidences(draft_token_ids: Any, confidences: Sequence[Sequence[float]]) -> None:
    """Attach a confidence for each draft to vLLM's ``DraftTokenIds``.

    Args:
        draft_token_ids: the drafts of a step.
        confidences: for each request, from 0 to 1, one for each draft.
    """
    setattr(draft_token_ids, ATTRIBUTE, confidences)


def confidences_of(draft_token_ids: Any) -> Sequence[Sequence[float]] | None:
    """Return what :func:`attach_confidences` attached; None without."""
    found: Sequence[Sequence[float]] | None = getattr(draft_token_ids, ATTRIBUTE, None)
    return found
