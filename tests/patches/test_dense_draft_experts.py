"""A dense draft of a target whose experts are spread over ranks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.patches.cases import TakeOut
from tests.zoo import ZOO
from vllm_ascend_spec.patches import dense_draft_experts as patch


def verify(folder: str, runner: str) -> None:
    """Let vLLM check a model of the zoo for two ranks that share its experts."""
    from vllm.config import ModelConfig, ParallelConfig

    path = str(ZOO / folder)
    # A draft's kind is set as SpeculativeConfig does it.
    how: dict[str, Any] = {"runner": runner, "tokenizer": path, "dtype": "float32"}
    config = ModelConfig(model=path, **how)
    config.verify_with_parallel_config(
        ParallelConfig(tensor_parallel_size=2, enable_expert_parallel=True)
    )


def test_stock_fault_and_patch(take_out: TakeOut) -> None:
    take_out(patch)
    with pytest.raises(ValueError, match="must be greater than 0 when expert parallelism"):
        verify("eagle3-qwen3-moe", "draft")
    patch.apply()
    verify("eagle3-qwen3-moe", "draft")


def test_a_target_without_experts_is_refused_as_before(take_out: TakeOut) -> None:
    take_out(patch)
    patch.apply()
    with pytest.raises(ValueError, match="must be greater than 0 when expert parallelism"):
        verify("target", "generate")
    verify("target-qwen3-moe", "generate")
