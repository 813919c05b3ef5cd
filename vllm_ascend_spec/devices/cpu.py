"""The CPU, on top of vLLM's own platform."""

from __future__ import annotations

from vllm_ascend_spec import versions
from vllm_ascend_spec.config.device import Device
from vllm_ascend_spec.config.engine import Request
from vllm_ascend_spec.errors import ConfigError

# vLLM has no other there, and uses one of them whatever was asked for (vllm/platforms/cpu.py).
ATTENTION_BACKENDS = ("auto", "CPU_ATTN", "CPU_MLA", "AMX_MLA")


def check_attention_backend(request: Request) -> None:
    """Refuse attention backends of other devices.

    Raises:
        ConfigError: one is asked for.
    """
    wanted = request.spec.get("attention_backend")
    name = str(getattr(wanted, "name", wanted))
    if wanted is not None and name.upper() not in map(str.upper, ATTENTION_BACKENDS):
        valid = ", ".join(map(repr, ATTENTION_BACKENDS))
        raise ConfigError(
            "speculative_config.attention_backend",
            wanted,
            f"has no effect on a CPU; valid: {valid}",
        )


DEVICE = Device(
    name="cpu",
    about="the CPU",
    find=versions.is_cpu_build,
    platform="vllm_ascend_spec.platform.cpu.SpecCpuPlatform",
    family="vllm",
    max_drafts=64,
    checks=(check_attention_backend,),
    has_graphs=False,
    # vLLM's CPU worker asks for Intel's OpenMP; the distribution intel-openmp puts it there.
    preload="libiomp5.so",
)
