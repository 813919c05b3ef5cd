"""Features of an engine that rule out a K that changes from step to step, by vLLM's configuration.

``draft_length.py`` has the checks that need the options alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_ascend_spec.config.capture import GIVEN
from vllm_ascend_spec.config.schedule import has_lockstep_replicas
from vllm_ascend_spec.config.schedulers import SCHEDULERS

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from vllm_ascend_spec.config.device import Device
    from vllm_ascend_spec.config.resolved import SpecConfig


def blocker_of_auto(
    vllm_config: VllmConfig, speculation: SpecConfig, device: Device, *, is_full: bool
) -> str | None:
    """Return the feature of an engine that keeps ``auto`` from choosing K, or None.

    Args:
        vllm_config: the engine's configuration.
        speculation: the engine's resolved speculation.
        device: the kind of device that it runs on.
        is_full: whether the mode that was asked for, or vLLM's default, has full graphs.
    """
    model = vllm_config.model_config
    text = getattr(model, "hf_text_config", None)
    reasons = {
        "--scheduler-cls": vllm_config.scheduler_config.scheduler_cls
        not in {None, *SCHEDULERS.values()},
        "data-parallel replicas that step together": has_lockstep_replicas(vllm_config),
    }
    if speculation.draft_loop is not None:
        # Our loops leave these to the stock ones, or no test has tried them with another K.
        reasons |= {
            "sparse attention": hasattr(text, "index_topk"),
            "compressed attention": hasattr(text, "compress_ratios"),
        }
    if is_full and device.has_graphs:
        full = "full graphs, which vLLM makes piecewise where K changes"
        problem = blocker_of_full_graphs(vllm_config, speculation)
        reasons |= {
            full: not device.has_graphs_by_k,
            "cudagraph_capture_sizes, which are for one K": speculation.capture == GIVEN,
            "capture_graphs, which are for one K": speculation.capture_graphs is not None,
            f"full graphs and {problem}": problem is not None,
        }
    return next((name for name, is_there in reasons.items() if is_there), None)


def blocker_of_full_graphs(vllm_config: VllmConfig, speculation: SpecConfig) -> str | None:
    """Return what rules out full graphs if K changes, or None."""
    model, mode = vllm_config.model_config, vllm_config.compilation_config.cudagraph_mode
    parallel, spec = vllm_config.parallel_config, vllm_config.speculative_config
    problems = {
        "a scheduler that is not ours": vllm_config.scheduler_config.scheduler_cls
        not in {None, *SCHEDULERS.values()},
        # Its replay parameters are stored by the number of tokens, once for all K
        # (vllm_ascend/compilation/acl_graph.py:set_graph_params).
        "multi-head latent attention": model is None or model.use_mla,
        "graphs for any mixture of requests (FULL)": mode is not None and mode.name == "FULL",
    }
    if speculation.draft_loop is not None:
        problems |= {
            "the draft loop of vllm-ascend": speculation.draft_loop == "stock",
            # Drafts made in one pass run outside of graphs.
            "sampled drafts": speculation.samples_drafts and not spec.parallel_drafting,
            "decode context parallelism": parallel.decode_context_parallel_size > 1,
        }
    return next((name for name, is_there in problems.items() if is_there), None)
