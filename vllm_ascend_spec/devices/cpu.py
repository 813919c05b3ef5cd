"""The CPU, on top of vLLM's own platform."""

from __future__ import annotations

from vllm_ascend_spec import versions
from vllm_ascend_spec.config.device import Device
from vllm_ascend_spec.config.engine import Request
from vllm_ascend_spec.errors import ConfigError

# By option. vLLM uses one of these attention backends whatever was asked for
# (vllm/platforms/cpu.py), and ends while it loads experts if a backend for them was asked for.
BACKENDS = {
    "attention_backend": ("auto", "CPU_ATTN", "CPU_MLA", "AMX_MLA"),
    "moe_backend": ("auto",),
}


def check_backends(request: Request) -> None:
    """Refuse backends of other devices.

    Raises:
        ConfigError: one is asked for.
    """
    for option, known in BACKENDS.items():
        wanted = request.spec.get(option)
        name = str(getattr(wanted, "name", wanted))
        if wanted is not None and name.upper() not in map(str.upper, known):
            valid = ", ".join(map(repr, known))
            problem = f"not possible on a CPU; valid: {valid}"
            raise ConfigError(f"speculative_config.{option}", wanted, problem)


DEVICE = Device(
    name="cpu",
    about="the CPU",
    find=versions.is_cpu_build,
    platform="vllm_ascend_spec.platform.cpu.SpecCpuPlatform",
    family="vllm",
    max_drafts=64,
    checks=(check_backends,),
    has_graphs=False,
    # vLLM's CPU worker asks for Intel's OpenMP; the distribution intel-openmp puts it there.
    preload="libiomp5.so",
)
