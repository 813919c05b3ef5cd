"""vllm-ascend's platform with our worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_ascend.device.hardware_profile import get_current_hardware_profile
from vllm_ascend.platform import NPUPlatform

from vllm_ascend_spec.compat import registry as compat
from vllm_ascend_spec.devices.npu import DEVICE
from vllm_ascend_spec.errors import PlatformError
from vllm_ascend_spec.platform.shared import CommandLineMixin, check_engine_config

if TYPE_CHECKING:
    from vllm.config import VllmConfig

STOCK_WORKER = "vllm_ascend.worker.worker.NPUWorker"
WORKER = "vllm_ascend_spec.worker.npu.SpecNPUWorker"

# Here, because vllm-ascend reads its options in every process, in a worker's before our own code.
compat.apply("npu_platform")


class SpecNpuPlatform(CommandLineMixin, NPUPlatform):
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
