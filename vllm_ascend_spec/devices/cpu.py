"""The CPU, on top of vLLM's own platform."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vllm_ascend_spec import versions
from vllm_ascend_spec.checkpoint.config_json import NAME, read_config, text_of
from vllm_ascend_spec.checkpoint.errors import blame
from vllm_ascend_spec.checkpoint.recurrent import GATED_DELTA_NET, with_state
from vllm_ascend_spec.config.device import Device
from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.upstream.limits import (
    NO_EXPERT_REPLICAS_ON_CPU,
    NO_GATED_DELTA_NET_ON_CPU,
    NO_MLA_ON_CPU,
)

# Valid values by option. vLLM uses one of these attention backends whatever was requested
# (vllm/platforms/cpu.py), and fails while it loads experts if a MoE backend was requested.
BACKENDS = {
    "attention_backend": ("auto", "CPU_ATTN", "CPU_MLA", "AMX_MLA"),
    "moe_backend": ("auto",),
}
# Keys of the number of experts in model configs
# (vllm/transformers_utils/model_arch_config_convertor.py:ModelArchConfigConvertorBase).
EXPERTS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")


def check_backends(request: SpecInput) -> None:
    """Refuse backends of other devices.

    Raises:
        ConfigError: an option requests such a backend.
    """
    for option, known in BACKENDS.items():
        wanted = request.spec.get(option)
        name = str(getattr(wanted, "name", wanted))
        if wanted is not None and name.upper() not in map(str.upper, known):
            valid = ", ".join(map(repr, known))
            problem = f"not possible on a CPU; valid: {valid}"
            raise ConfigError(f"speculative_config.{option}", wanted, problem)


def check_target(request: SpecInput) -> None:
    """Refuse a target that vLLM cannot run; a hub model is checked once vLLM has its config.

    Raises:
        ConfigError: vLLM cannot run the target, or replicas of it, on a CPU.
    """
    model = request.model
    if model is None or not (Path(model) / NAME).is_file():
        return
    with blame("model", model):
        config = read_config(Path(model))
    architecture = with_state(config)
    if architecture is not None:
        refuse_state(request.method.name, architecture)
    if NO_MLA_ON_CPU is not None and text_of(config).get("kv_lora_rank") is not None:
        raise ConfigError(
            "model", model, f"multi-head latent attention is not possible with {NO_MLA_ON_CPU}"
        )
    copies = request.engine.data_parallel_size
    if NO_EXPERT_REPLICAS_ON_CPU is not None and copies > 1 and has_experts(config):
        raise ConfigError(
            "--data-parallel-size",
            copies,
            "data-parallel replicas of a mixture of experts are not possible with "
            f"{NO_EXPERT_REPLICAS_ON_CPU}",
        )


def has_experts(config: Mapping[str, Any]) -> bool:
    """Tell whether a config describes a mixture of experts."""
    return any(text_of(config).get(name) for name in EXPERTS)


def refuse_state(method: str, architecture: str) -> None:
    """Refuse speculation for a target whose layers keep a state, unless this package has them.

    Of vLLM 0.30's CPU kernels, Mamba 2 and short convolutions give different tokens with drafts.
    Gated DeltaNet layers run in ours (``states/``).

    Raises:
        ConfigError: the layers are vLLM's.
    """
    where = f"not possible on a CPU with a target of {architecture}, whose layers keep a state"
    if architecture not in GATED_DELTA_NET:
        raise ConfigError(
            "speculative_config.method",
            method,
            f"{where}: vLLM stops, or its answers differ from those without speculation; leave out "
            "--speculative-config",
        )
    if NO_GATED_DELTA_NET_ON_CPU is not None:
        raise ConfigError(
            "speculative_config.method",
            method,
            f"{where}, and {NO_GATED_DELTA_NET_ON_CPU}; leave out --speculative-config",
        )


DEVICE = Device(
    name="cpu",
    about="the CPU",
    find=versions.is_cpu_build,
    platform="vllm_ascend_spec.platform.cpu.SpecCpuPlatform",
    family="vllm",
    max_drafts=64,
    max_tree_drafts=63,
    checks=(check_backends, check_target),
    has_graphs=False,
    # vLLM's CPU worker wants Intel's OpenMP; the distribution intel-openmp installs it.
    preload="libiomp5.so",
)
