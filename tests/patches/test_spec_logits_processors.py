"""Logits processors of an engine with speculation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.v1.sample.logits_processor import (
    LogitBiasLogitsProcessor,
    MinPLogitsProcessor,
    MinTokensLogitsProcessor,
)
from vllm.v1.worker import gpu_model_runner

from tests.patches.cases import TakeOut
from tests.verification.requests import BatchLevel, PenaliseRepeats, RowWise
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.patches import spec_logits_processors as patch
from vllm_ascend_spec.verification.min_tokens import MinTokens


def build(*custom: type, speculative: bool = True, pooling: bool = False) -> set[str]:
    """Return the names of the processors that the runner's function builds."""
    config: Any = SimpleNamespace(
        speculative_config=SimpleNamespace() if speculative else None,
        scheduler_config=SimpleNamespace(max_num_seqs=2),
    )
    built = gpu_model_runner.build_logitsprocs(config, torch.device("cpu"), False, pooling, custom)
    return {type(processor).__name__ for processor in built.all}


OTHERS = {c.__name__ for c in (LogitBiasLogitsProcessor, MinPLogitsProcessor)}
BUILTIN, OURS = OTHERS | {MinTokensLogitsProcessor.__name__}, OTHERS | {MinTokens.__name__}


def test_stock_fault_and_patch(take_out: TakeOut) -> None:
    take_out(patch)
    assert build() == {"MinTokensLogitsProcessor"}
    patch.apply()
    assert build() == OURS


@pytest.mark.parametrize("custom", [PenaliseRepeats, RowWise])
def test_stock_fault_and_patch_for_custom_processors(take_out: TakeOut, custom: type) -> None:
    take_out(patch)
    with pytest.raises(ValueError, match="not supported when speculative decoding is enabled"):
        build(custom)
    patch.apply()
    assert build(custom) == OURS | {custom.__name__}


def test_processor_without_row_support_is_refused_at_start(take_out: TakeOut) -> None:
    take_out(patch)
    patch.apply()
    with pytest.raises(ConfigError, match=r"logits_processors='BatchLevel': .*apply_to_rows"):
        build(PenaliseRepeats, BatchLevel)


def test_without_speculation_everything_is_as_before(take_out: TakeOut) -> None:
    take_out(patch)
    stock = build(BatchLevel, speculative=False)
    patch.apply()
    assert build(BatchLevel, speculative=False) == stock == BUILTIN | {"BatchLevel"}


def test_pooling_models_are_as_before(take_out: TakeOut) -> None:
    take_out(patch)
    patch.apply()
    assert build(pooling=True) == set()
    with pytest.raises(ValueError, match="Pooling models"):
        build(PenaliseRepeats, pooling=True)
