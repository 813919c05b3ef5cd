"""MTP layers have the positions of a target whose context is overridden."""

from __future__ import annotations

from typing import Any

from vllm.engine.arg_utils import EngineArgs
from vllm.plugins import load_general_plugins

from tests.patches.cases import TakeOut
from tests.zoo import SPECS, TARGET, target_of
from vllm_ascend_spec.patches import mtp_target_overrides as patch

STRETCHED = {
    "max_position_embeddings": 4096,
    "rope_parameters": {"rope_type": "linear", "factor": 1.5, "rope_theta": 20000.0},
    "attention_dropout": 0.5,
}


# Every engine applies all patches; now, and not within a test.
load_general_plugins()


def draft_config(method: str) -> Any:
    """Return what vLLM makes of a draft's config, where its target's context is stretched."""
    args = EngineArgs(
        model=target_of(SPECS[method]) if method == "mtp" else TARGET,
        dtype="float32",
        max_model_len=4096,
        hf_overrides=STRETCHED,
        speculative_config=dict(SPECS[method]),
        kv_cache_memory_bytes=64 << 20,
    )
    return args.create_engine_config().speculative_config.draft_model_config


def test_stock_fault_and_patch(take_out: TakeOut) -> None:
    take_out(patch)
    assert draft_config("mtp").max_model_len == 2048
    patch.apply()
    found = draft_config("mtp")
    assert found.max_model_len == 4096
    assert found.hf_text_config.rope_parameters == STRETCHED["rope_parameters"]
    # What is not about positions stays the target's own.
    assert getattr(found.hf_text_config, "attention_dropout", 0.0) != 0.5


def test_a_head_of_its_own_is_left_alone(take_out: TakeOut) -> None:
    take_out(patch)
    patch.apply()
    assert draft_config("eagle").max_model_len == 2048


def test_overrides_of_a_part(take_out: TakeOut) -> None:
    """Multimodal models have their text's config within theirs."""
    from transformers import PretrainedConfig

    take_out(patch)
    patch.apply()
    config = PretrainedConfig(
        architectures=["MiMoForCausalLM"], num_hidden_layers=4, num_nextn_predict_layers=1
    )
    config.model_type = "qwen2"
    found = patch.with_positions({"text_config": {"rope_theta": 7.0, "head_dim": 3}}, config)
    assert found.rope_theta == 7.0
    assert not hasattr(found, "head_dim")
