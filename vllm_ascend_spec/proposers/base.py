"""What all proposers with a draft model share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from vllm_ascend_spec.config.schema import SpecOptions


class ModelProposerMixin:
    """Mix into a subclass of vLLM's ``SpecDecodeBaseProposer``, before it in the bases."""

    @classmethod
    def create(
        cls, vllm_config: VllmConfig, device: torch.device, runner: Any, options: SpecOptions
    ) -> Any:
        """Build the proposer of an engine."""
        return cls(vllm_config, device, runner)  # type: ignore[call-arg]
