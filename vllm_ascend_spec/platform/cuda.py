"""vLLM's CUDA platform with our worker."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from vllm.platforms.cuda import CudaPlatform

from vllm_ascend_spec.devices.cuda import DEVICE
from vllm_ascend_spec.log import log_once
from vllm_ascend_spec.patches import v1_model_runner
from vllm_ascend_spec.platform.capture import set_capture_sizes
from vllm_ascend_spec.platform.cuda_trees import set_tree_attention
from vllm_ascend_spec.platform.shared import (
    CommandLineMixin,
    DefaultsMixin,
    check_engine_config,
    set_scheduler,
)
from vllm_ascend_spec.upstream.sequence_parallel import has_sequence_parallel_pass

if TYPE_CHECKING:
    from vllm.config import VllmConfig

WORKER = "vllm_ascend_spec.worker.cuda.SpecGPUWorker"
RUNS_ON_V1 = (
    "Model runner V1 is used, where vLLM would choose V2: speculative decoding of "
    "vllm-ascend-spec runs on V1."
)


class SpecCudaPlatform(CommandLineMixin, DefaultsMixin, CudaPlatform):
    """CUDA platform that runs speculative decoding through our drafters and verifier.

    The base is one of two classes: on import vLLM picks one by whether the host has NVML. An engine
    without speculation keeps vLLM's own worker and runner.
    """

    @classmethod
    def check_and_update_config(cls, vllm_config: VllmConfig) -> None:
        """Validate our options and, with speculation, name our worker."""
        check_engine_config(vllm_config, DEVICE)
        if vllm_config.speculative_config is not None:
            if v1_model_runner.stock_choice(vllm_config):
                log_once(logging.INFO, RUNS_ON_V1)
            if vllm_config.parallel_config.worker_cls == "auto":
                vllm_config.parallel_config.worker_cls = WORKER
            set_tree_attention(vllm_config)
        super().check_and_update_config(vllm_config)
        set_capture_sizes(vllm_config, divisor_of, draft_has_pieces=True)
        set_scheduler(vllm_config)


def divisor_of(vllm_config: VllmConfig) -> int:
    """Return the number that vLLM requires every graph size to be a multiple of."""
    shares = has_sequence_parallel_pass(vllm_config)
    return vllm_config.parallel_config.tensor_parallel_size if shares else 1
