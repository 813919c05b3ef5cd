"""MTP layers of MiMo, as vLLM 0.30's ``mimo_mtp.py`` loads them: Qwen2's with a projection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.checkpoint import config_json
from vllm_ascend_spec.checkpoint.architectures.llama import (
    QWEN2,
    check_settings,
    layer_shapes,
    sizes_of,
)
from vllm_ascend_spec.checkpoint.tensors import Shape, Table

ARCHITECTURES = ("MiMoForCausalLM", "MiMoMTPModel")
COUNT = "num_nextn_predict_layers"


def table_of(architecture: str, config: Mapping[str, Any]) -> Table | None:
    """Return the tensors of MiMo's MTP layers, or None for another architecture.

    Raises:
        InvalidCheckpointError: an entry of the config is missing or wrong.
    """
    if architecture not in ARCHITECTURES:
        return None
    check_settings(config)
    sizes = sizes_of(config, QWEN2)
    norm = Shape((sizes.hidden,), "hidden_size")
    layer = {
        **layer_shapes(config, sizes, QWEN2),
        "token_layernorm.weight": norm,
        "hidden_layernorm.weight": norm,
        "final_layernorm.weight": norm,
        "input_proj.weight": Shape((sizes.hidden, 2 * sizes.hidden), "hidden_size"),
    }
    return Table(
        name="MiMoMTP",
        outside={},
        stack="model.mtp_layers.",
        layers=config_json.size(config, COUNT),
        layer=lambda number: layer,
        count=COUNT,
    )
