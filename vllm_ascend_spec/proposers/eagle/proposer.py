"""EAGLE's proposer."""

from __future__ import annotations

from vllm.v1.spec_decode.eagle import EagleProposer

from vllm_ascend_spec.proposers.base import ModelProposerMixin


class SpecEagleProposer(ModelProposerMixin, EagleProposer):
    """vLLM's EAGLE proposer with our draft loop."""
