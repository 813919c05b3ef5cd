"""From vLLM's configuration to ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    if section is None:
        return SpecOptions()
    options = SpecOptions.from_mapping(section)
    if vllm_config.speculative_config is None and section:
        raise ConfigError(
            f"additional_config.{SECTION}",
            section,
            "has no effect without --speculative-config",
        )
    return options
