"""Options that vllm-ascend accepts and that would be lossy, or mean nothing, with this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vllm_ascend_spec.errors import ConfigError

SPEC = "speculative_config"
LOSSY = (
    "is not lossless in vllm-ascend 0.30.0rc2: what it accepts does not have the target's "
    "distribution"
)
# Of additional_config, by section and name: what is wrong with a value other than false or null.
ADDITIONAL: dict[tuple[str, str], str] = {
    ("rejection_sampler_config", "enable_block_verify"): (
        f"{LOSSY}; use additional_config.ascend_spec.verify_rule='block', which is"
    ),
    ("rejection_sampler_config", "enable_entropy_verify"): LOSSY,
    ("dynamic_spec_config", "method"): (
        "has an effect with the methods dspark and dflash only, which are not supported here"
    ),
    ("xlite_graph_config", "enabled"): (
        "brings a worker of its own, which knows nothing of this package; leave it out, or "
        "leave ascend_spec out of VLLM_PLUGINS"
    ),
}
# Keys of speculative_config.
SPECULATIVE: dict[str, str] = {
    "quantization": "vllm-ascend ignores it and quantizes the draft as the target",
    "use_local_argmax_reduction": "vllm-ascend ignores it",
    "use_heterogeneous_vocab": "vllm-ascend ignores it and would take draft ids for target ids",
    "attention_backend": "vllm-ascend ignores it; the draft uses the target's backend",
}


def check_ascend_options(vllm_config: Any) -> None:
    """Refuse what vllm-ascend would do lossily or not at all.

    Args:
        vllm_config: the engine's, with speculation on, before vllm-ascend has changed it.

    Raises:
        ConfigError: naming the option and the reason.
    """
    given = vllm_config.additional_config
    for (section, name), problem in ADDITIONAL.items():
        values = given.get(section) if isinstance(given, Mapping) else None
        value = values.get(name) if isinstance(values, Mapping) else None
        if value:
            raise ConfigError(f"additional_config.{section}.{name}", value, problem)
    check_speculative(lambda name: getattr(vllm_config.speculative_config, name, None))


def check_speculative(get: Callable[[str], Any]) -> None:
    """Refuse keys of ``speculative_config`` that have no effect on an NPU.

    Args:
        get: returns the value of a key, or None.

    Raises:
        ConfigError: naming the option and the reason.
    """
    for name, problem in SPECULATIVE.items():
        if value := get(name):
            raise ConfigError(f"{SPEC}.{name}", value, f"has no effect on an NPU: {problem}")
