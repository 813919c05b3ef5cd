"""From vLLM's configuration to ours."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vllm_ascend_spec.config.rules import resolve_rule
from vllm_ascend_spec.config.schema import SECTION, SpecOptions
from vllm_ascend_spec.errors import ConfigError

if TYPE_CHECKING:
    from vllm.config import VllmConfig


def resolve_options(vllm_config: VllmConfig) -> SpecOptions:
    """Return our options of an engine.

    Raises:
        ConfigError: an option is unknown, has an invalid value, or has no effect here.
    """
    additional = vllm_config.additional_config
    section = additional.get(SECTION) if isinstance(additional, dict) else None
    options = SpecOptions() if section is None else SpecOptions.from_mapping(section)
    spec = vllm_config.speculative_config
    if spec is not None:
        return replace(
            options, verify_rule=resolve_rule(spec.rejection_sample_method, section or {})
        )
    if section:
        raise ConfigError(
            f"additional_config.{SECTION}",
            section,
            "has no effect without --speculative-config",
        )
    return options
