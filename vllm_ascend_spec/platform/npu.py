"""vllm-ascend's platform with our worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_ascend.device.hardware_profile import get_current_hardware_profile
from vllm_ascend.platform import NPUPlatform
from vllm_ascend.utils import enable_dsa_cp, enable_sp, shared_expert_dp_enabled

from vllm_ascend_spec.compat import registry as compat
from vllm_ascend_spec.devices.npu import DEVICE
from vllm_ascend_spec.errors import PlatformError
from vllm_ascend_spec.platform.capture import lay_capture_sizes
from vllm_ascend_spec.platform.shared import (
    CommandLineMixin,
    DefaultsMixin,
    check_engine_config,
    lay_scheduler,
)

if TYPE_CHECKING:
    from vllm.config import VllmConfig

STOCK_WORKER = "vllm_ascend.worker.worker.NPUWorker"
WORKER = "vllm_ascend_spec.worker.npu.SpecNPUWorker"

# Here, because vllm-ascend reads its options in every process, in a worker's before our own code.
compat.apply("npu_platform")


class SpecNpuPlatform(CommandLineMixin, DefaultsMixin, NPUPlatform):
    """NPU platform that runs speculative decoding through our drafters and verifier."""

    @classmethod
    def check_and_update_config(cls, vllm_config: VllmConfig) -> None:
        """Validate our options and, with speculation, name our worker."""
        check_engine_config(vllm_config, DEVICE)
        if vllm_config.speculative_config is not None:
            require_stock_worker()
            if vllm_config.parallel_config.worker_cls == "auto":
                vllm_config.parallel_config.worker_cls = WORKER
        super().check_and_update_config(vllm_config)
        lay_capture_sizes(vllm_config, divisor_of, may_lack_streams=True)
        lay_scheduler(vllm_config)


def divisor_of(vllm_config: VllmConfig) -> int:
    """Return what vllm-ascend wants every size of a graph to be a multiple of.

    As ``vllm_ascend/platform.py:_setup_compile_backend`` does it.
    """
    ranks = vllm_config.parallel_config.tensor_parallel_size
    shares = enable_sp(vllm_config) or shared_expert_dp_enabled() or enable_dsa_cp()
    return ranks if shares or vllm_config.compilation_config.pass_config.enable_sp else 1


def require_stock_worker() -> None:
    """Raise unless this NPU is one for which vllm-ascend has the worker that ours extends.

    Raises:
        PlatformError: it is another one, a 310P for instance.
    """
    worker = get_current_hardware_profile().default_worker_cls
    if worker != STOCK_WORKER:
        raise PlatformError(
            f"vllm-ascend runs this NPU with {worker}, which vllm-ascend-spec does not know: there "
            "is no speculative decoding with it here. Remedy: leave out --speculative-config, or "
            "ascend_spec in VLLM_PLUGINS."
        )
