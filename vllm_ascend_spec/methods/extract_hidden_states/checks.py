"""Check which hidden states are asked for, and that a connector stores them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.checkpoint.config_json import read_config, text_of
from vllm_ascend_spec.checkpoint.errors import blame
from vllm_ascend_spec.checkpoint.folder import find_target
from vllm_ascend_spec.config.engine import OFFLOADING, SpecInput
from vllm_ascend_spec.errors import ConfigError

COUNT, CONFIG = "num_speculative_tokens", "draft_model_config"
INNER, LAYERS = "hf_config", "eagle_aux_hidden_state_layer_ids"
FORM = f'valid: {{"{INNER}": {{"{LAYERS}": [2, 18, 34]}}}}'


def check_extract_hidden_states(request: SpecInput) -> None:
    """Check the layers, and that K is 1 and there is a connector.

    Raises:
        ConfigError: naming the option, its value and what is valid.
    """
    if request.spec[COUNT] != 1:
        problem = "valid: 1; the method exports hidden states, and its draft is only a placeholder"
        raise ConfigError(f"speculative_config.{COUNT}", request.spec[COUNT], problem)
    check_layers(layers_of(request.spec[CONFIG]), num_layers_of(request))
    connector = request.engine.kv_connector
    if connector is None:
        raise ConfigError(
            "--kv-transfer-config",
            connector,
            "method 'extract_hidden_states' needs one to store the states; valid: "
            '{"kv_connector": "ExampleHiddenStatesConnector", "kv_role": "kv_producer", …}',
        )
    if connector == OFFLOADING:
        raise ConfigError(
            "--kv-transfer-config",
            connector,
            "vLLM puts that of --kv-offloading-size in the place of the one that stores the "
            "states; valid: no such size",
        )


def layers_of(config: Any) -> Any:
    """Return the layers that a ``draft_model_config`` names.

    Raises:
        ConfigError: the config has another form.
    """
    option = f"speculative_config.{CONFIG}"
    inner = config.get(INNER) if isinstance(config, Mapping) else None
    if not isinstance(inner, Mapping) or LAYERS not in inner:
        raise ConfigError(option, config, FORM)
    for table, known, place in ((config, INNER, option), (inner, LAYERS, f"{option}.{INNER}")):
        for key in table:
            if key != known:
                raise ConfigError(f"{place}.{key}", table[key], f"has no effect; {FORM}")
    return inner[LAYERS]


def check_layers(layers: Any, num_layers: int | None) -> None:
    """Check the layers.

    vLLM returns the states in the order of the layers, each once, whatever order was asked for.

    Args:
        layers: the value given by the user.
        num_layers: number of layers of the target, or None if the target is not on this machine.

    Raises:
        ConfigError: they are no layers of the target, or not in order.
    """
    most = "" if num_layers is None else f" to {num_layers}"
    is_list = isinstance(layers, list | tuple) and len(layers) > 0
    whole = is_list and all(isinstance(i, int) and not isinstance(i, bool) for i in layers)
    fits = whole and all(i >= 0 and (num_layers is None or i <= num_layers) for i in layers)
    if not fits or list(layers) != sorted(set(layers)):
        raise ConfigError(
            f"speculative_config.{CONFIG}.{INNER}.{LAYERS}",
            layers,
            f"valid: a list, not empty, of whole numbers from 0{most} in rising order; i is the "
            "output of the first i layers",
        )


def num_layers_of(request: SpecInput) -> int | None:
    """Return the target's number of layers, or None if the target is not on this machine."""
    target = find_target(request.model) if request.model else None
    if target is None:
        return None
    with blame("model", str(target)):
        count = text_of(read_config(target)).get("num_hidden_layers")
    return count if isinstance(count, int) else None
