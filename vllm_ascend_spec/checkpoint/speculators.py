"""Configs in the format of the speculators library, as vLLM reads them.

``config.json`` has the decoder's own settings in ``transformer_layer_config`` and the head's beside
it. ``speculators_config`` says for which model it drafts and how many drafts it makes in a step
(vllm/transformers_utils/configs/speculators/base.py:SpeculatorsConfig).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, short_value

# Its selector needs the logits of all candidates after all candidates (speculators 0.9,
# speculators/models/dflash2). vLLM has it in model runner V2 only, vllm-ascend on V1, greedy.
DFLASH2, DFLASH2_ARCHITECTURE = "dflash2", "DFlash2DraftModel"
NO_DFLASH2 = (
    "a DFlash 2 head convolves the rows of a block and selects its drafts from candidates, which "
    "this package's draft loops do not; use a head of dflash or dspark"
)
MARK, ALGORITHM = "speculators_config", "speculators_model_type"
DECODER = "transformer_layer_config"
Config = Mapping[str, Any]


def is_speculators(config: Config) -> bool:
    """Return whether vLLM takes a config for one of the speculators library."""
    return config.get(MARK) is not None


def flattened(config: Config) -> dict[str, Any]:
    """Return the config of the model that vLLM builds.

    Raises:
        InvalidCheckpointError: a part is missing, or its algorithm is not known here.
    """
    algorithm, decoder = config.get(ALGORITHM), config.get(DECODER)
    if algorithm == DFLASH2:
        raise InvalidCheckpointError(f"config.json: {ALGORITHM} is {algorithm!r}: {NO_DFLASH2}")
    settings = ALGORITHMS.get(algorithm) if isinstance(algorithm, str) else None
    if settings is None:
        valid = ", ".join(map(repr, ALGORITHMS))
        raise InvalidCheckpointError(
            f"config.json: {ALGORITHM} is {short_value(algorithm)}; valid: {valid}"
        )
    if not isinstance(decoder, dict):
        raise InvalidCheckpointError(
            f"config.json: {DECODER} is {short_value(decoder)}; valid: an object"
        )
    return {**decoder, **settings(config, decoder)}


# vLLM's architecture by the decoder's model_type.
EAGLE3 = {"llama": "Eagle3LlamaForCausalLM", "qwen3": "Eagle3Qwen3ForCausalLM"}


def _eagle3(config: Config, decoder: Config) -> dict[str, Any]:
    """Port of vllm/transformers_utils/configs/speculators/algos.py:update_eagle3."""
    settings = {
        "draft_vocab_size": config.get("draft_vocab_size"),
        "norm_before_residual": config.get("norm_before_residual", True),
        "norm_before_fc": config.get("norm_before_fc", False),
        "fc_norm": config.get("fc_norm", False),
        "norm_output": config.get("norm_output", False),
        "architectures": [_architecture(decoder, EAGLE3)],
    }
    if config.get("target_hidden_size") is not None:
        settings["target_hidden_size"] = config["target_hidden_size"]
    if config.get("eagle_aux_hidden_state_layer_ids"):
        settings["eagle_aux_hidden_state_layer_ids"] = config["eagle_aux_hidden_state_layer_ids"]
    return settings


PEAGLE = {"llama": "PeagleLlamaForCausalLM", "qwen3": "PeagleQwen3ForCausalLM"}


def _peagle(config: Config, decoder: Config) -> dict[str, Any]:
    """Port of vllm/transformers_utils/configs/speculators/algos.py:update_peagle."""
    return {
        **_eagle3(config, decoder),
        "norm_before_residual": config.get("norm_before_residual", False),
        "pard_token": config.get("mask_token_id"),
        "architectures": [_architecture(decoder, PEAGLE)],
    }


def _layers(config: Config) -> list[int]:
    """Return the target's layers that a head reads, counted as vLLM's model does."""
    layers = config.get("aux_hidden_state_layer_ids")
    if not isinstance(layers, list) or not all(type(layer) is int for layer in layers):
        raise InvalidCheckpointError(
            f"config.json: aux_hidden_state_layer_ids is {short_value(layers)}; valid: a list of "
            "the target's layers, such as [2, 18, 33]"
        )
    return [layer - 1 for layer in layers]


def _dflash(config: Config, decoder: Config) -> dict[str, Any]:
    """Port of vllm/transformers_utils/configs/speculators/algos.py:update_dflash."""
    settings = {
        "architectures": ["DFlashDraftModel"],
        "draft_vocab_size": config.get("draft_vocab_size"),
        "dflash_config": {
            "mask_token_id": config.get("mask_token_id"),
            "target_layer_ids": _layers(config),
        },
    }
    if config.get("target_hidden_size") is not None:
        settings["target_hidden_size"] = config["target_hidden_size"]
    return settings


DSPARK = ("Qwen3DSparkModel", "Qwen3OmniDSparkModel")
# What vLLM's config of a DSpark head takes over where it is given.
OF_DSPARK = (
    "draft_vocab_size",
    "target_hidden_size",
    "mask_token_id",
    "markov_rank",
    "markov_head_type",
    "block_size",
    "enable_confidence_head",
    "confidence_head_with_markov",
    "use_aux_hidden_state",
)


def _dspark(config: Config, decoder: Config) -> dict[str, Any]:
    """Port of vllm/transformers_utils/configs/speculators/algos.py:update_dspark."""
    named = config.get("architectures")
    known = [name for name in named if name in DSPARK] if isinstance(named, list) else []
    return {
        "architectures": known or [DSPARK[0]],
        "sample_from_anchor": config.get("sample_from_anchor", False),
        "target_layer_ids": _layers(config),
        **{name: config[name] for name in OF_DSPARK if config.get(name) is not None},
    }


def _architecture(decoder: Config, known: Mapping[str, str]) -> str:
    model_type = decoder.get("model_type", "llama")
    if not isinstance(model_type, str) or model_type not in known:
        valid = ", ".join(map(repr, known))
        raise InvalidCheckpointError(
            f"config.json: model_type of {DECODER} is {short_value(model_type)}; valid: {valid}"
        )
    return known[model_type]


# By speculators_model_type: returns what vLLM's config has beside the decoder's own settings.
ALGORITHMS: Mapping[str, Callable[[Config, Config], dict[str, Any]]] = {
    "eagle3": _eagle3,
    "peagle": _peagle,
    "dflash": _dflash,
    "dspark": _dspark,
}
# Options that vLLM sets for a head whose algorithm is not the name of a method.
PROPOSED: Mapping[str, Mapping[str, Any]] = {
    "peagle": {"method": "eagle3", "parallel_drafting": True},
    DFLASH2: {"method": "dflash"},
}
