"""A draft that ModelSlim quantized is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from vllm.config import LoadConfig, VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.plugins import load_general_plugins

from examples.zoo.training import modelslim
from tests.patches.cases import TakeOut
from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.patches import quantized_draft as patch

# Every engine applies all patches; now, and not within a test.
load_general_plugins()


def test_stock_fault_and_patch(take_out: TakeOut, tmp_path: Path) -> None:
    modelslim.quantize_dynamic(Path(SPECS["eagle"]["model"]), tmp_path)
    args = EngineArgs(
        model=TARGET,
        dtype="float32",
        max_model_len=512,
        speculative_config={
            **SPECS["eagle"],
            "model": str(tmp_path),
            "quantization": "ascend",
        },
        kv_cache_memory_bytes=64 << 20,
    )
    draft = args.create_engine_config().speculative_config.draft_model_config
    take_out(patch)
    with pytest.raises(ValueError, match="hf_overrides must be a dict"):
        VllmConfig.get_quantization_config(draft, LoadConfig())
    patch.apply()
    assert VllmConfig.get_quantization_config(draft, LoadConfig()).get_name() == "ascend"
    assert callable(draft.hf_overrides)
