"""vLLM's names, up to 0.8, for the keys of ``speculative_config`` before it existed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.errors import ConfigError

# New name by old name; None for options that have no effect any more.
KEYS: Mapping[str, str | None] = {
    "speculative_model": "model",
    "speculative_method": "method",
    "num_speculative_tokens": "num_speculative_tokens",
    "speculative_draft_tensor_parallel_size": "draft_tensor_parallel_size",
    "speculative_disable_by_batch_size": "disable_by_batch_size",
    "speculative_max_model_len": "max_model_len",
    "speculative_model_quantization": "quantization",
    "ngram_prompt_lookup_max": "prompt_lookup_max",
    "ngram_prompt_lookup_min": "prompt_lookup_min",
    "spec_decoding_acceptance_method": None,
    # Options of the typical acceptance rule, which is refused; without it they had no effect.
    "typical_acceptance_sampler_posterior_threshold": None,
    "typical_acceptance_sampler_posterior_alpha": None,
    "num_lookahead_slots": None,
    "disable_logprobs_during_spec_decoding": None,
    "use_v2_block_manager": None,
    "speculative_disable_mqa_scorer": None,
}
# vLLM's short command-line flags, which are not keys.
ALIASES: Mapping[str, str] = {
    "spec_model": "model",
    "spec_method": "method",
    "spec_tokens": "num_speculative_tokens",
}


def check_names(spec: Mapping[str, Any], place: str) -> None:
    """Raise if a key has an old name or the name of a command-line flag.

    Args:
        spec: the speculative config, with underscores in its keys.
        place: what messages call the config.

    Raises:
        ConfigError: a key has such a name; the message gives the right one.
    """
    for key, value in spec.items():
        new = KEYS.get(key, ALIASES.get(key, ""))
        if new in {key, ""} or value is None:
            continue
        problem = "has had no effect since vLLM 0.9; leave it out"
        if new:
            problem = f"has another name here; write {new!r}"
        raise ConfigError(f"{place}.{key}", value, problem)
