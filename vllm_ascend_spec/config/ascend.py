"""Options that vllm-ascend accepts but that are lossy or have no effect with this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vllm_ascend_spec.config.engine import UNKNOWN, SpecInput
from vllm_ascend_spec.config.parallel_drafting import in_one_pass
from vllm_ascend_spec.config.schedule import NAME as SCHEDULE
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.upstream.limits import NO_LOOP_ON_NPU

SPEC = "speculative_config"
LOSSY = (
    "is not lossless in vllm-ascend 0.30.0rc2: what it accepts does not have the target's "
    "distribution"
)
# By section and name in additional_config: why a value other than false or null is refused.
ADDITIONAL: dict[tuple[str, str], str] = {
    ("rejection_sampler_config", "enable_block_verify"): (
        f"{LOSSY}; use additional_config.ascend_spec.verify_rule='block', which is"
    ),
    ("rejection_sampler_config", "enable_entropy_verify"): LOSSY,
    ("dynamic_spec_config", "method"): (
        "has an effect only in vllm-ascend's own loops of dspark and dflash, which this package "
        "replaces; use speculative_config.num_speculative_tokens_per_batch_size"
    ),
    ("xlite_graph_config", "enabled"): (
        "replaces the worker of this package with another one; leave it out, or "
        "leave ascend_spec out of VLLM_PLUGINS"
    ),
}
# By key of speculative_config: why it is refused.
SPECULATIVE: dict[str, str] = {
    "quantization": "vllm-ascend ignores it and quantizes the draft like the target",
    "use_local_argmax_reduction": "vllm-ascend ignores it",
    "use_heterogeneous_vocab": "vllm-ascend ignores it and would take draft ids for target ids",
    "moe_backend": "vllm-ascend ignores it",
    "attention_backend": "vllm-ascend ignores it; the draft uses the target's backend",
}


GRAPH_REMEDY = (
    "leave it out, or set speculative_config.enforce_eager=true, or a cudagraph_mode without FULL"
)
# vLLM's names of its CUDAGraphMode; its default is the first.
FULL_MODES = ("FULL_AND_PIECEWISE", "FULL_DECODE_ONLY", "FULL")


def check_for_npu(request: SpecInput) -> None:
    """Refuse options that vllm-ascend applies lossily or ignores, or that full graphs rule out.

    Raises:
        ConfigError: naming the option and the reason.
    """
    check_ascend_options(request.additional, request.spec.get)
    check_sampled_drafts(request)
    check_full_graph(mode_of_draft(request), samples_drafts=samples_drafts(request.spec.get))


def check_sampled_drafts(request: SpecInput) -> None:
    """Refuse sampled drafts if the draft loop does not return their distributions.

    Raises:
        ConfigError: such drafts are asked for.
    """
    has_stock_loop = request.method.has_draft_loop and NO_LOOP_ON_NPU is not None
    if has_stock_loop and samples_drafts(request.spec.get):
        raise ConfigError(
            f"{SPEC}.draft_sample_method",
            "probabilistic",
            f"not possible with {NO_LOOP_ON_NPU}: its drafts are greedy; valid: 'auto', 'greedy'",
        )


def mode_of_draft(request: SpecInput) -> str:
    """Return vLLM's name of the draft's graph mode, or :data:`UNKNOWN`."""
    mode = mode_asked_for(request)
    # If K changes, what full graphs do not support gets piecewise ones (platform/dynamic_k.py).
    return "PIECEWISE" if mode != "NONE" and request.spec.get(SCHEDULE) else mode


def mode_asked_for(request: SpecInput) -> str:
    """Return the draft's graph mode before a changing K makes full graphs piecewise."""
    engine, spec = request.engine, request.spec
    # Drafts made in one pass run outside of graphs, see methods/loops/ascend/loop.py.
    has_graphs = request.method.has_draft_loop and not in_one_pass(request)
    if not has_graphs or engine.enforce_eager or spec.get("enforce_eager"):
        return "NONE"
    return FULL_MODES[0] if engine.cudagraph_mode is None else engine.cudagraph_mode


def reason_for_greedy(request: SpecInput) -> str | None:
    """Return what keeps drafts from being sampled on an NPU, or None.

    This holds with a schedule of K, too: sampled drafts would make its full graphs piecewise.
    """
    if request.method.has_draft_loop and NO_LOOP_ON_NPU is not None:
        return f"{NO_LOOP_ON_NPU}: its drafts are greedy"
    if mode_asked_for(request) in (*FULL_MODES, UNKNOWN):
        return "full graphs on an NPU, whose drafts are greedy"
    return None


def samples_drafts(get: Callable[[str], Any]) -> bool:
    """Tell whether drafts are sampled from a distribution.

    Args:
        get: returns the value of a key of ``speculative_config``, or None.
    """
    is_sampled = get("draft_sample_method") == "probabilistic"
    return is_sampled and get("rejection_sample_method") != "synthetic"


def check_full_graph(mode: str, *, samples_drafts: bool) -> None:
    """Refuse options that a full graph does not support.

    Args:
        mode: name of vLLM's ``CUDAGraphMode`` in an engine that uses graphs for the draft.
        samples_drafts: whether drafts are sampled from a distribution.

    Raises:
        ConfigError: naming the option and the reason.
    """
    if mode not in FULL_MODES:
        return
    if mode == "FULL":
        raise ConfigError(
            "compilation_config.cudagraph_mode",
            mode,
            "not possible with a draft model on an NPU: such a graph drafts for too few of a "
            "batch's requests; valid: FULL_AND_PIECEWISE, FULL_DECODE_ONLY, PIECEWISE",
        )
    if samples_drafts:
        raise ConfigError(
            f"{SPEC}.draft_sample_method",
            "probabilistic",
            f"has no effect in a full graph on an NPU, where drafts are greedy; {GRAPH_REMEDY}",
        )


def check_ascend_options(additional: Any, get: Callable[[str], Any]) -> None:
    """Refuse options that vllm-ascend applies lossily or ignores.

    Args:
        additional: all of ``--additional-config``.
        get: returns the value of a key of ``speculative_config``, or None.

    Raises:
        ConfigError: naming the option and the reason.
    """
    for (section, name), problem in ADDITIONAL.items():
        values = additional.get(section) if isinstance(additional, Mapping) else None
        value = values.get(name) if isinstance(values, Mapping) else None
        if value:
            raise ConfigError(f"additional_config.{section}.{name}", value, problem)
    for name, problem in SPECULATIVE.items():
        if (value := get(name)) and str(value).lower() != "auto":
            raise ConfigError(f"{SPEC}.{name}", value, f"has no effect on an NPU: {problem}")
