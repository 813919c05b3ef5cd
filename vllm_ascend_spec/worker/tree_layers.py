"""Attention layers of a target whose drafts are trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

from vllm_ascend_spec.config.draft_tree import OPTION
from vllm_ascend_spec.errors import ConfigError

if TYPE_CHECKING:
    from vllm_ascend_spec.config.resolved import SpecConfig

SHARED = "keys and values that layers share"


def target_layers(
    target: Any,
    layers: Mapping[str, Any],
    problem_of: Callable[[Any], str | None],
    asked: SpecConfig,
) -> dict[str, Any]:
    """Return the attention layers of the target by name, without those of the draft.

    Args:
        target: the model.
        layers: vLLM's layers by name.
        problem_of: returns why a layer cannot attend along paths; None if it can.
        asked: the resolved speculation.

    Raises:
        ConfigError: a layer cannot.
    """
    own = {id(module) for module in target.modules()}
    found = {
        name: layer
        for name, layer in layers.items()
        if id(layer) in own and isinstance(layer, AttentionLayerBase)
    }
    if problem := next(filter(None, map(problem_of, found.values())), None):
        option = asked.sources.get("tree", OPTION)
        raise ConfigError(option, asked.max_k, f"not possible with {problem}")
    return found
