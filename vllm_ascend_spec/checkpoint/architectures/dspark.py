"""DSpark heads, as vLLM 0.30 loads them (vllm/model_executor/models/qwen3_dspark.py).

They have a DFlash head's tensors and those of the Markov and the confidence head. What a DFlash
config has in ``dflash_config`` may also stand outside of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vllm_ascend_spec.checkpoint import config_json
from vllm_ascend_spec.checkpoint.architectures import dflash
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, short_value
from vllm_ascend_spec.checkpoint.masks import DFLASH
from vllm_ascend_spec.checkpoint.target_states import Settings
from vllm_ascend_spec.checkpoint.tensors import Shape, Table

ARCHITECTURE = "Qwen3DSparkModel"
# The same heads as DeepSeek published them first.
OLD_ARCHITECTURE = "DSparkDraftModel"
RANK, HEAD_TYPE, VANILLA = "markov_rank", "markov_head_type", "vanilla"


def as_dflash(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config with the target's layers where a DFlash head has them.

    Raises:
        InvalidCheckpointError: ``dflash_config`` is no table.
    """
    config_json.check_table(config, DFLASH)
    own = dict(config.get(DFLASH) or {})
    if dflash.LAYER_IDS in config:
        own.setdefault(dflash.LAYER_IDS, config[dflash.LAYER_IDS])
    return {**config, DFLASH: own}


def settings_of(config: Mapping[str, Any]) -> Settings:
    """Read and check what decides the tensors outside of the layers.

    Raises:
        InvalidCheckpointError: an entry is missing, of another type, or not supported by vLLM.
    """
    kind = config.get(HEAD_TYPE, VANILLA)
    if kind != VANILLA:
        raise InvalidCheckpointError(
            f"config.json: {HEAD_TYPE} is {short_value(kind)}; valid: '{VANILLA}', the only Markov "
            "head that vLLM's model has"
        )
    config_json.flag(config, "sample_from_anchor", True)
    return dflash.settings_of(as_dflash(config))


def table_of(config: Mapping[str, Any], settings: Settings) -> Table:
    """Return the tensors of a head.

    Raises:
        InvalidCheckpointError: an entry of the config is missing or wrong.
    """
    table = dflash.table_of(as_dflash(config), settings)
    rank = config_json.size(config, RANK)
    markov = {
        "markov_head.markov_w1.weight": Shape((settings.vocab, rank), f"vocab_size and {RANK}"),
        "markov_head.markov_w2.weight": Shape(
            (settings.draft_vocab, rank), f"draft_vocab_size and {RANK}"
        ),
    }
    with_markov = config_json.flag(config, "confidence_head_with_markov")
    read = settings.hidden + (rank if with_markov else 0)
    sizes = f"hidden_size and, with confidence_head_with_markov, {RANK}"
    unused = {
        "confidence_head.proj.weight": Shape((1, read), sizes),
        "confidence_head.proj.bias": Shape((1,), "one output"),
        "mask_embedding": Shape((settings.hidden,), "hidden_size"),
    }
    return replace(
        table,
        name=ARCHITECTURE,
        outside={**table.outside, **markov},
        optional={**table.optional, **unused},
    )
