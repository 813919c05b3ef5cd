"""Tell whether ranks split a batch's tokens: graph sizes are then multiples of their number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_ascend_spec.upstream.ranges import vllm_is

if TYPE_CHECKING:
    from vllm.config import VllmConfig


def has_sequence_parallel_pass(vllm_config: VllmConfig) -> bool:
    """Tell whether vLLM's compiler pass for sequence parallelism is on; 0.32 took it out."""
    if vllm_is("<0.32"):
        return bool(vllm_config.compilation_config.pass_config.enable_sp)
    return False
