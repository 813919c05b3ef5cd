"""Checks and defaults that all of our platforms share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vllm_ascend_spec.config.capture import note_given
from vllm_ascend_spec.config.device import Device
from vllm_ascend_spec.config.draft_context import check_window, context_warnings
from vllm_ascend_spec.config.resolved import attach, speculation_of
from vllm_ascend_spec.config.schedulers import SCHEDULERS
from vllm_ascend_spec.config.schema import AUTO
from vllm_ascend_spec.config.tree_rules import cause_in_config
from vllm_ascend_spec.devices.select import find_device
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.platform.cache_groups import set_one_group
from vllm_ascend_spec.platform.dynamic_k import hide_dynamic_k, settle_auto

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from vllm_ascend_spec.config.resolved import SpecConfig


class CommandLineMixin:
    """Mixin for a platform of vLLM or vllm-ascend; must come before it in the bases."""

    @classmethod
    def pre_register_and_update(cls, parser: FlexibleArgumentParser | None = None) -> None:
        """Make ``vllm serve`` report wrong options before anything expensive starts."""
        super().pre_register_and_update(parser)  # type: ignore[misc]
        if parser is not None:
            from vllm_ascend_spec.hooks import parser_hook

            parser_hook.apply(parser)


class DefaultsMixin:
    """Mixin for a platform of vLLM or vllm-ascend; must come before it in the bases."""

    @classmethod
    def apply_config_platform_defaults(cls, vllm_config: VllmConfig) -> None:
        """Record what the user requested before defaults replace it."""
        note_given(vllm_config.compilation_config)
        if (device := find_device()) is not None:
            settle_auto(vllm_config, device)
            hide_dynamic_k(vllm_config, has_graphs_by_k=device.has_graphs_by_k)
        super().apply_config_platform_defaults(vllm_config)  # type: ignore[misc]


def set_scheduler(vllm_config: VllmConfig) -> None:
    """Name our scheduler if there is speculation, unless the user named another one.

    Raises:
        ConfigError: the user named another one, and K or the draft's window is chosen from step to
            step.
    """
    if vllm_config.speculative_config is None:
        return
    speculation = speculation_of(vllm_config)
    is_adaptive = speculation.draft_lengths is not None
    scheduler = vllm_config.scheduler_config
    if scheduler.scheduler_cls in (None, *SCHEDULERS.values()):
        scheduler.scheduler_cls = SCHEDULERS[is_adaptive, bool(scheduler.async_scheduling)]
    elif is_adaptive:
        problem = "not possible with draft_length='adaptive', which needs its own; leave it out"
        raise ConfigError("--scheduler-cls", scheduler.scheduler_cls, problem)
    elif speculation.draft_window == AUTO:
        problem = "not possible with draft_window='auto', which needs ours; leave it out"
        raise ConfigError("--scheduler-cls", scheduler.scheduler_cls, problem)


def check_engine_config(vllm_config: VllmConfig, device: Device) -> None:
    """Attach the resolved speculation to an engine's configuration, and report its rule.

    Args:
        vllm_config: configuration that vLLM passes to the platform.
        device: the platform's kind of device.

    Raises:
        ConfigError: naming the option, its value and what is valid.
    """
    from vllm_ascend_spec.hooks.attach import attach_resolved
    from vllm_ascend_spec.metrics.rule import announce_rule

    speculation = attach_resolved(vllm_config, device)
    if speculation is not None and vllm_config.model_config is not None:
        found = (*speculation.warnings, set_one_group(vllm_config), *context_warnings(vllm_config))
        warnings = tuple(dict.fromkeys(warning for warning in found if warning is not None))
        check_window(vllm_config, speculation)
        check_tree_target(vllm_config, speculation, device)
        speculation = replace(speculation, warnings=warnings)
        attach(vllm_config, speculation)
    # Without a model it is a placeholder that vLLM builds without an engine.
    if vllm_config.model_config is not None:
        announce_rule(speculation)
    if speculation is not None:
        check_model_runner(vllm_config)


def check_tree_target(vllm_config: VllmConfig, speculation: SpecConfig, device: Device) -> None:
    """Refuse trees for a target that cannot have them; most of a folder's was checked before.

    Raises:
        ConfigError: naming the reason.
    """
    if not speculation.has_trees:
        return
    model = vllm_config.model_config
    cause = cause_in_config(model.hf_config.to_dict(), device)
    if getattr(model, "enable_return_routed_experts", False):
        cause = "enable_return_routed_experts, which would tell the experts of other drafts"
    if cause is not None:
        option = speculation.sources["tree"]
        raise ConfigError(option, speculation.max_k, f"not possible with {cause}")


def check_model_runner(vllm_config: VllmConfig) -> None:
    """Raise if an engine with speculation is to run on model runner V2.

    Raises:
        ConfigError: an option requests V2; names that option.
    """
    from vllm_ascend_spec.config.model_runner import NEEDS_V2
    from vllm_ascend_spec.patches.v1_model_runner import find_demand

    if (demand := find_demand(vllm_config)) is not None:
        raise ConfigError(demand.option, demand.value, NEEDS_V2)
