"""Hide from vLLM that K changes from step to step, where vLLM need not know.

vLLM drops a schedule of K if there are data-parallel replicas
(``vllm/config/vllm.py:VllmConfig._maybe_disable_dynamic_sd_for_data_parallel``) and downgrades full
graphs to piecewise graphs (``VllmConfig._maybe_override_dynamic_sd_cudagraph_mode``). Otherwise
only its scheduler reads the schedule, and ours has its own. With ``draft_length="auto"`` vLLM gets
no schedule. If a part of the engine cannot switch between K and 0, K is fixed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from vllm_ascend_spec.config.ascend import FULL_MODES
from vllm_ascend_spec.config.capture import note_graphs_by_k, set_sizes_by_k
from vllm_ascend_spec.config.draft_length import because
from vllm_ascend_spec.config.dynamic_k import blocker_of_auto, blocker_of_full_graphs
from vllm_ascend_spec.config.resolved import ATTRIBUTE, attach
from vllm_ascend_spec.config.schedule import has_lockstep_replicas
from vllm_ascend_spec.config.schedulers import SCHEDULERS
from vllm_ascend_spec.config.schema import AUTO
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks.attach import pending_or_attached
from vllm_ascend_spec.log import log_once

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from vllm_ascend_spec.config.device import Device
    from vllm_ascend_spec.config.resolved import SpecConfig


def settle_auto(vllm_config: VllmConfig, device: Device) -> None:
    """Fix K with ``draft_length="auto"`` if the engine cannot switch between K and 0.

    vLLM later passes a draft's copy of the configuration, too; that changes nothing.

    Args:
        vllm_config: configuration that vLLM passes to the platform before it fills in defaults.
        device: the platform's kind of device.
    """
    spec, speculation = vllm_config.speculative_config, pending_or_attached(vllm_config)
    if spec is None or speculation is None or speculation.draft_length != AUTO:
        return
    if device.has_graphs_by_k:
        note_graphs_by_k(vllm_config.compilation_config, True)
    if hasattr(spec, ATTRIBUTE):
        return
    attach(vllm_config, speculation)
    reason = blocker_of_auto(vllm_config, speculation, device, is_full=is_full(vllm_config))
    if reason is not None:
        fix_length(vllm_config, speculation, reason)


def fix_length(vllm_config: VllmConfig, speculation: SpecConfig, reason: str) -> None:
    """Fix K where it could have been K or 0, and log why.

    Args:
        vllm_config: configuration of the engine.
        speculation: resolved speculation of the engine.
        reason: the part of the engine that cannot switch between K and 0.
    """
    source = because(reason)
    attach(vllm_config, speculation.with_fixed_length(source))
    note_graphs_by_k(vllm_config.compilation_config, False)
    set_sizes_by_k(vllm_config.compilation_config, {})
    log_once(logging.INFO, f"K={speculation.max_k} is fixed: draft_length={source}.")


def hide_dynamic_k(vllm_config: VllmConfig, *, has_graphs_by_k: bool) -> None:
    """Hide the schedule of K from vLLM where our scheduler and graphs handle it.

    Args:
        vllm_config: configuration that vLLM passes to the platform before it fills in defaults.
        has_graphs_by_k: whether this device captures full graphs for each K.

    Raises:
        ConfigError: there are data-parallel replicas, and the scheduler is not ours.
    """
    spec, speculation = vllm_config.speculative_config, pending_or_attached(vllm_config)
    if spec is None or speculation is None or speculation.schedule is None:
        return
    has_copies = vllm_config.parallel_config.data_parallel_size > 1
    scheduler = vllm_config.scheduler_config.scheduler_cls
    if has_copies and scheduler not in {None, *SCHEDULERS.values()}:
        wrong = "not possible with --data-parallel-size and a K that changes; leave it out"
        raise ConfigError("--scheduler-cls", scheduler, wrong)
    problem = blocker_of_full_graphs(vllm_config, speculation)
    keeps_full = has_graphs_by_k and problem is None
    if keeps_full and not has_lockstep_replicas(vllm_config):
        note_graphs_by_k(vllm_config.compilation_config, True)
    if has_copies or keeps_full:
        spec.num_speculative_tokens_per_batch_size = None
    elif has_graphs_by_k and is_full(vllm_config):
        log_once(
            logging.WARNING,
            "Piecewise graphs are used instead of full ones: K changes from step to step, which "
            f"full graphs do not allow with {problem}.",
        )


def is_full(vllm_config: VllmConfig) -> bool:
    """Tell whether the requested graph mode, or else vLLM's default, has full graphs."""
    mode = vllm_config.compilation_config.cudagraph_mode
    if getattr(vllm_config.model_config, "enforce_eager", False):
        return False
    # vLLM's default from optimization level 2 on.
    is_default = mode is None and vllm_config.optimization_level >= 2
    return is_default or (mode is not None and mode.name in FULL_MODES)
