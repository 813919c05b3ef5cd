"""What all proposers with a draft model share on the NPU: the width of the draft loop.

vllm-ascend runs draft steps 2..K on as many rows as the first one wherever graphs are on
(spec_decode/llm_base_proposer.py:1669): K+1 rows for each request, of which one is used. Ours runs
them on one row for each request, in graphs and out of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig

    from vllm_ascend_spec.config.schema import SpecOptions


class NpuModelProposerMixin:
    """Mix into a subclass of ``AscendSpecDecodeBaseProposer``, before it in the bases."""

    @classmethod
    def create(
        cls, vllm_config: VllmConfig, device: torch.device, runner: Any, options: SpecOptions
    ) -> Any:
        """Build the proposer of an engine.

        Raises:
            ConfigError: ``draft_loop="fused"`` was asked for, which is the CPU's.
        """
        if options.draft_loop == "fused":
            raise ConfigError(
                "additional_config.ascend_spec.draft_loop",
                "fused",
                "not possible on an NPU, where the draft loop is one graph; "
                "valid here: 'auto', 'stock'",
            )
        proposer: Any = cls(vllm_config, device, runner)  # type: ignore[call-arg]
        spec = proposer.speculative_config
        # As on the CPU: vLLM hands the distributions over for the standard method alone; the block
        # rule needs them as much.
        proposer._enable_probabilistic_draft_probs = (
            spec.draft_sample_method == "probabilistic"
            and spec.rejection_sample_method != "synthetic"
        )
        return proposer
