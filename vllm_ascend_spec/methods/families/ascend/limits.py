"""What no draft loop on an NPU can do, by the model and by the graphs that an engine uses."""

from __future__ import annotations

from typing import Any, NoReturn

from vllm_ascend_spec.config.ascend import GRAPH_REMEDY, check_full_graph
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.upstream.limits import FIXED_K

SEVERAL_CACHE_GROUPS = ("glm5_next_mtp",)


def require_possible(drafter: Any) -> None:
    """Refuse what ``config/ascend.py`` refuses before anything is loaded, of the engine's own mode.

    Raises:
        ConfigError: naming the option and the reason.
    """
    require_one_cache_group(drafter.speculative_config)
    mode = drafter.compilation_config.cudagraph_mode
    if not drafter.use_cuda_graph or not mode.has_full_cudagraphs():
        return
    check_full_graph(mode.name, samples_drafts=drafter._enable_probabilistic_draft_probs)
    if FIXED_K is not None:
        return
    schedule = drafter.speculative_config.num_speculative_tokens_per_batch_size
    if schedule:  # vLLM sees it where our parts do not care for it (platform/changing_k.py)
        refuse_length("speculative_config.num_speculative_tokens_per_batch_size", schedule)


def refuse_length(option: str, value: Any, problem: str = "") -> NoReturn:
    """Refuse a K that changes, in full graphs that hold as many draft steps always.

    Args:
        option: that K changes by.
        value: of it.
        problem: what keeps our draft loop from being used; empty for nothing.

    Raises:
        ConfigError: naming the option and the reason.
    """
    cause = f" ({problem})" if problem else ""
    raise ConfigError(
        option,
        value,
        "not possible within a full graph on an NPU, which has all draft steps"
        f"{cause}; {GRAPH_REMEDY}",
    )


def require_one_cache_group(speculative_config: Any) -> None:
    """Refuse MTP layers for which vllm-ascend has a proposer of their own.

    It is chosen by vllm_ascend/spec_decode/multi_kv_cache_group_proposer.py:
    is_multi_kv_cache_group_mtp, by the same name.

    Raises:
        ConfigError: naming the model.
    """
    draft = getattr(speculative_config, "draft_model_config", None)
    model_type = getattr(getattr(draft, "hf_config", None), "model_type", None)
    if model_type in SEVERAL_CACHE_GROUPS:
        raise ConfigError(
            "speculative_config.method",
            "mtp",
            f"not possible on an NPU with layers of model_type {model_type!r}, whose KV cache is "
            "in several groups; use another method",
        )
