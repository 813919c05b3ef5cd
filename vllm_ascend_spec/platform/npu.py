"""vllm-ascend's platform with our worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_ascend.device.hardware_profile import get_current_hardware_profile
from vllm_ascend.platform import NPUPlatform

from vllm_ascend_spec.compat import npu_additional_config
from vllm_ascend_spec.config.ascend import check_ascend_options
from vllm_ascend_spec.errors import PlatformError
from vllm_ascend_spec.platform.shared import check_command_line, check_engine_config

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.utils.argparse_utils import FlexibleArgumentParser

STOCK_WORKER = "vllm_ascend.worker.worker.NPUWorker"
WORKER = "vllm_ascend_spec.worker.npu.SpecNPUWorker"

# Here, because vllm-ascend reads its options in every process, in a worker's before our own code.
npu_additional_config.apply()


class SpecNpuPlatform(NPUPlatform):
    """NPU platform that runs speculative decoding through our proposers and verifier."""

    @classmethod
    def pre_register_and_update(cls, parser: FlexibleArgumentParser | None = None) -> None:
        """Check the command line before anything expensive starts."""
        super().pre_register_and_update(parser)
        check_command_line(parser)

    @classmethod
    def check_and_update_config(cls, vllm_config: VllmConfig) -> None:
        """Validate our options and, with speculation, name our worker."""
        check_engine_config(vllm_config)
        if vllm_config.speculative_config is not None:
            spec = vllm_config.speculative_config
            check_ascend_options(
                vllm_config.additional_config, lambda name: getattr(spec, name, None)
            )
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
