"""A K that changes from step to step: where vLLM need not know of it.

vLLM drops a schedule of K where there are copies of the target
(``vllm/config/vllm.py:VllmConfig._maybe_disable_dynamic_sd_for_data_parallel``) and lowers full
graphs to graphs of pieces (``VllmConfig._maybe_override_dynamic_sd_cudagraph_mode``). Nobody but
its scheduler reads the schedule otherwise, and ours has its own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from vllm_ascend_spec.config.ascend import FULL_MODES
from vllm_ascend_spec.config.capture import note_graphs_by_k
from vllm_ascend_spec.config.schedule import are_copies_coupled
from vllm_ascend_spec.control.names import SCHEDULERS
from vllm_ascend_spec.entry.handover import waiting_or_laid
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.log import log_once

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from vllm_ascend_spec.config.resolved import Speculation


def keep_to_ourselves(vllm_config: VllmConfig, *, has_graphs_by_k: bool) -> None:
    """Take the schedule of K out of vLLM's sight where our parts do without vLLM's care.

    Args:
        vllm_config: as vLLM shows it to the platform before it fills in defaults.
        has_graphs_by_k: whether there are full graphs for each K on this device.

    Raises:
        ConfigError: there are copies, and a scheduler that is not ours.
    """
    spec, speculation = vllm_config.speculative_config, waiting_or_laid(vllm_config)
    if spec is None or speculation is None or speculation.schedule is None:
        return
    has_copies = vllm_config.parallel_config.data_parallel_size > 1
    scheduler = vllm_config.scheduler_config.scheduler_cls
    if has_copies and scheduler not in {None, *SCHEDULERS.values()}:
        wrong = "not possible with --data-parallel-size and a K that changes; leave it out"
        raise ConfigError("--scheduler-cls", scheduler, wrong)
    problem = problem_of(vllm_config, speculation)
    keeps_full = has_graphs_by_k and problem is None
    if keeps_full and not are_copies_coupled(vllm_config):
        note_graphs_by_k(vllm_config.compilation_config)
    if has_copies or keeps_full:
        spec.num_speculative_tokens_per_batch_size = None
    elif has_graphs_by_k and is_full(vllm_config):
        log_once(
            logging.WARNING,
            "Graphs of pieces are used, not full ones: K changes from step to step, which is not "
            f"possible in full graphs with {problem}.",
        )


def is_full(vllm_config: VllmConfig) -> bool:
    """Tell whether the mode that was asked for, or vLLM's default, has full graphs."""
    mode = vllm_config.compilation_config.cudagraph_mode
    if getattr(vllm_config.model_config, "enforce_eager", False):
        return False
    # vLLM's default from its second level of optimization on.
    is_default = mode is None and vllm_config.optimization_level >= 2
    return is_default or (mode is not None and mode.name in FULL_MODES)


def problem_of(vllm_config: VllmConfig, speculation: Speculation) -> str | None:
    """Return what keeps graphs from being full where K changes, or None."""
    model, mode = vllm_config.model_config, vllm_config.compilation_config.cudagraph_mode
    parallel = vllm_config.parallel_config
    problems = {
        "a scheduler that is not ours": vllm_config.scheduler_config.scheduler_cls
        not in {None, *SCHEDULERS.values()},
        # What a replay of it is to change is kept by the number of tokens, one for all K
        # (vllm_ascend/compilation/acl_graph.py:set_graph_params).
        "multi-head latent attention": model is None or model.use_mla,
        "graphs for any mixture of requests (FULL)": mode is not None and mode.name == "FULL",
    }
    if speculation.draft_loop is not None:
        problems |= {
            "the draft loop of vllm-ascend": speculation.draft_loop == "stock",
            "drafts that are drawn": speculation.samples_drafts,
            "a multimodal target": model is None or model.is_multimodal_model,
            "decode context parallelism": parallel.decode_context_parallel_size > 1,
        }
    return next((name for name, is_there in problems.items() if is_there), None)
