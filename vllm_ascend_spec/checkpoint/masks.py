"""The mask token, which stands for a token to be drafted in a model that drafts in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vllm_ascend_spec.checkpoint import config_json
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, short_value

DFLASH = "dflash_config"
# In vLLM's order (vllm/v1/spec_decode/llm_base_proposer.py:SpecDecodeBaseProposer).
NAMES = ("mask_token_id", "dspark_noise_token_id", "pard_token", "ptd_token_id")


def check_mask(config: Mapping[str, Any]) -> None:
    """Raise unless a config names a mask token, and the vocabulary has it.

    Raises:
        InvalidCheckpointError: there is none, or the vocabulary does not have it.
    """
    name, token = next(_named(config), (None, None))
    if name is None:
        raise InvalidCheckpointError(
            "config.json names no mask token, so it cannot draft in one pass; valid: one of "
            f"{', '.join((f'{DFLASH}.{NAMES[0]}', *NAMES))}"
        )
    last = config_json.size(config, "vocab_size") - 1
    if type(token) is not int or not 0 <= token <= last:
        raise InvalidCheckpointError(
            f"config.json: {name} is {short_value(token)}; valid: a token, 0 to {last}"
        )


def _named(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    config_json.check_table(config, DFLASH)
    inner = config.get(DFLASH) or {}
    if NAMES[0] in inner:
        yield f"{DFLASH}.{NAMES[0]}", inner[NAMES[0]]
    for name in NAMES:
        if config.get(name) is not None:
            yield name, config[name]
