"""A model with several MTP layers takes any number of drafts."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import PretrainedConfig

from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches import mtp_one_layer as patch


def layers_of_draft(model_type: str, architecture: str, **settings: Any) -> list[Any]:
    """Return what vLLM makes of a draft's config: as many predictions, and layers."""
    from vllm.config.speculative import SpeculativeConfig

    config = PretrainedConfig(
        architectures=[architecture], num_hidden_layers=4, num_nextn_predict_layers=2, **settings
    )
    config.model_type = model_type
    found = SpeculativeConfig.hf_config_override(config)
    return [getattr(found, "n_predict", None), found.num_nextn_predict_layers]


MODELS = {"qwen2": "MiMoForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM"}


@pytest.mark.parametrize("model_type", MODELS)
def test_stock_fault_and_patch(take_out: TakeOut, model_type: str) -> None:
    take_out(patch)
    assert layers_of_draft(model_type, MODELS[model_type]) == [2, 2]
    patch.apply()
    assert layers_of_draft(model_type, MODELS[model_type]) == [1, 1]


def test_what_uses_all_of_its_layers_keeps_them(take_out: TakeOut) -> None:
    take_out(patch)
    stock = layers_of_draft("step3p5", "Step3p5ForCausalLM")
    patch.apply()
    assert layers_of_draft("step3p5", "Step3p5ForCausalLM") == stock


def test_a_model_without_such_layers_is_left_alone(take_out: TakeOut) -> None:
    take_out(patch)
    patch.apply()
    assert layers_of_draft("llama", "LlamaForCausalLM") == [None, 2]
