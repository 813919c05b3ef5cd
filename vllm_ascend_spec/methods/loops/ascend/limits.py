"""Options that no draft loop on an NPU supports, depending on the model and the graph mode."""

from __future__ import annotations

from typing import Any, NoReturn

from vllm_ascend_spec.config.ascend import GRAPH_REMEDY, check_full_graph
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.upstream.limits import FIXED_K

SEVERAL_CACHE_GROUPS = ("glm5_next_mtp",)


def require_possible(drafter: Any) -> None:
    """Repeat the checks of ``config/ascend.py``, now with the engine's actual graph mode.

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
    if schedule:  # still set only where our parts do not handle it (platform/dynamic_k.py)
        refuse_length("speculative_config.num_speculative_tokens_per_batch_size", schedule)


def refuse_length(option: str, value: Any, problem: str = "") -> NoReturn:
    """Refuse a changing K in full graphs, which always hold the same number of draft steps.

    Args:
        option: the option that makes K change.
        value: its value.
        problem: the reason why our draft loop cannot be used; empty if there is none.

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
    """Refuse MTP layers for which vllm-ascend has a separate proposer.

    vllm-ascend selects it in vllm_ascend/spec_decode/multi_kv_cache_group_proposer.py:
    is_multi_kv_cache_group_mtp, by the same model type.

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
