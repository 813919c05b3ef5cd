"""vLLM's CPU platform with our worker."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vllm.platforms.cpu import CpuPlatform

from vllm_ascend_spec.platform.shared import check_command_line, check_engine_config

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.utils.argparse_utils import FlexibleArgumentParser

WORKER = "vllm_ascend_spec.worker.cpu.SpecCPUWorker"


class SpecCpuPlatform(CpuPlatform):
    """CPU platform that runs speculative decoding through our proposers and verifier."""

    @classmethod
    def pre_register_and_update(cls, parser: FlexibleArgumentParser | None = None) -> None:
        """Check the command line before anything expensive starts."""
        super().pre_register_and_update(parser)
        check_command_line(parser)

    @classmethod
    def check_and_update_config(cls, vllm_config: VllmConfig) -> None:
        """Validate our options and name our worker, whatever vLLM's platform chose before."""
        check_engine_config(vllm_config)
        if vllm_config.parallel_config.worker_cls == "auto":
            vllm_config.parallel_config.worker_cls = WORKER
        wanted = vllm_config.parallel_config.distributed_executor_backend
        super().check_and_update_config(vllm_config)
        if wanted == "uni" and can_run_in_the_engine(vllm_config):
            vllm_config.parallel_config.distributed_executor_backend = "uni"


def can_run_in_the_engine(vllm_config: VllmConfig) -> bool:
    """Tell whether the worker may run in the engine's process.

    vLLM gives every CPU worker a process of its own, to set up OpenMP there (platforms/cpu.py). A
    step then costs three round trips between two processes that spin while they wait, more with
    speculation than without. With one worker and the number of threads given by the person there
    is nothing to set up.
    """
    one_worker = vllm_config.parallel_config.world_size == 1
    return one_worker and bool(os.environ.get("OMP_NUM_THREADS"))
