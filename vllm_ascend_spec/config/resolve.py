"""From vLLM's configuration to ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.config.additional import section_of
from vllm_ascend_spec.config.rules import SYNTHETIC, resolve_rule
from vllm_ascend_spec.config.schema import SECTION, SpecOptions
from vllm_ascend_spec.errors import ConfigError

if TYPE_CHECKING:
    from vllm.config import VllmConfig


def require_speculation(section: Mapping[str, Any]) -> None:
    """Refuse options of ours in an engine without speculation.

    Raises:
        ConfigError: there are some.
    """
    if section:
        raise ConfigError(
            f"additional_config.{SECTION}", section, "has no effect without --speculative-config"
        )


def resolve_options(vllm_config: VllmConfig) -> SpecOptions:
    """Return our options of an engine; ``verify_rule`` is the one that is used.

    Raises:
        ConfigError: an option is unknown, has an invalid value, or has no effect here.
    """
    section = section_of(vllm_config.additional_config)
    options = SpecOptions.from_mapping(section)
    rule = rule_of(vllm_config)
    if rule is None:
        require_speculation(section)
    # With synthetic acceptance no rule is used, and none can be given.
    return options if rule in (None, SYNTHETIC) else replace(options, verify_rule=rule)


def rule_of(vllm_config: VllmConfig) -> str | None:
    """Return the rule of an engine, see :func:`resolve_rule`; None without speculation."""
    spec = vllm_config.speculative_config
    if spec is None:
        return None
    return resolve_rule(spec.rejection_sample_method, section_of(vllm_config.additional_config))
