"""The n-gram proposer on top of vllm-ascend's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_ascend.spec_decode.ngram_proposer import AscendNgramProposer

from vllm_ascend_spec.proposers.ngram.search import NgramSearchMixin

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig

    from vllm_ascend_spec.config.schema import SpecOptions


class SpecNpuNgramProposer(NgramSearchMixin, AscendNgramProposer):
    """vllm-ascend's n-gram proposer with our search."""

    @classmethod
    def create(
        cls, vllm_config: VllmConfig, device: torch.device, runner: Any, options: SpecOptions
    ) -> SpecNpuNgramProposer:
        """Build the proposer of an engine."""
        proposer = cls(vllm_config, runner)
        proposer.warm_up(runner)
        return proposer
