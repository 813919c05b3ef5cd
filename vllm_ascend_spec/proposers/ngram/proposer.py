"""The n-gram proposer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.v1.spec_decode.ngram_proposer import NgramProposer

from vllm_ascend_spec.proposers.ngram.warmup import warm_up

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig

    from vllm_ascend_spec.config.schema import SpecOptions


class SpecNgramProposer(NgramProposer):
    """vLLM's n-gram proposer, compiled before the first request."""

    @classmethod
    def create(
        cls, vllm_config: VllmConfig, device: torch.device, runner: Any, options: SpecOptions
    ) -> SpecNgramProposer:
        """Build the proposer of an engine."""
        proposer = cls(vllm_config)
        warm_up(proposer, runner)
        return proposer
