"""The draft model's proposer."""

from __future__ import annotations

from vllm.v1.spec_decode.draft_model import DraftModelProposer

from vllm_ascend_spec.proposers.base import ModelProposerMixin


class SpecDraftModelProposer(ModelProposerMixin, DraftModelProposer):
    """vLLM's draft-model proposer with our draft loop."""
