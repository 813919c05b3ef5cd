"""The draft model's proposer on top of vllm-ascend's."""

from __future__ import annotations

from vllm_ascend.spec_decode.draft_proposer import AscendDraftModelProposer

from vllm_ascend_spec.proposers.npu import NpuModelProposerMixin


class SpecNpuDraftModelProposer(NpuModelProposerMixin, AscendDraftModelProposer):
    """vllm-ascend's draft-model proposer with our draft loop."""
