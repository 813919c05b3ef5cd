"""The n-gram proposer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.v1.spec_decode.ngram_proposer import NgramProposer

from vllm_ascend_spec.proposers.ngram.search import NgramSearchMixin

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig

    from vllm_ascend_spec.config.schema import SpecOptions


class SpecNgramProposer(NgramSearchMixin, NgramProposer):
    """vLLM's n-gram proposer with our search."""

    @classmethod
    def create(
        cls, vllm_config: VllmConfig, device: torch.device, runner: Any, options: SpecOptions
    ) -> SpecNgramProposer:
        """Build the proposer of an engine."""
        proposer = cls(vllm_config)
        proposer.warm_up(runner)
        return proposer
