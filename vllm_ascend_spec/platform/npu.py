"""vllm-ascend's platform with our worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_ascend.platform import NPUPlatform

from vllm_ascend_spec.platform.shared import check_command_line, check_engine_config

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.utils.argparse_utils import FlexibleArgumentParser

WORKER = "vllm_ascend_spec.worker.npu.SpecNPUWorker"


class SpecNpuPlatform(NPUPlatform):
    """NPU platform that runs speculative decoding through our proposers and verifier."""

    @classmethod
    def pre_register_and_update(cls, parser: FlexibleArgumentParser | None = None) -> None:
        """Check the command line before anything expensive starts."""
        super().pre_register_and_update(parser)
        check_command_line(parser)

    @classmethod
    def check_and_update_config(cls, vllm_config: VllmConfig) -> None:
        """Validate our options and name our worker, whatever vllm-ascend would choose."""
        check_engine_config(vllm_config)
        if vllm_config.speculative_config is not None:
            from vllm_ascend_spec.config.ascend import check_ascend_options

            check_ascend_options(vllm_config)
        if vllm_config.parallel_config.worker_cls == "auto":
            vllm_config.parallel_config.worker_cls = WORKER
        super().check_and_update_config(vllm_config)
