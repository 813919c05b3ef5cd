"""EAGLE's proposer on top of vllm-ascend's."""

from __future__ import annotations

from vllm_ascend.spec_decode.eagle_proposer import AscendEagleProposer

from vllm_ascend_spec.proposers.npu import NpuModelProposerMixin


class SpecNpuEagleProposer(NpuModelProposerMixin, AscendEagleProposer):
    """vllm-ascend's EAGLE proposer with our draft loop."""
