"""vllm-ascend's platform with our worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_ascend.platform import NPUPlatform
from vllm_ascend.utils import enable_dsa_cp, enable_sp, shared_expert_dp_enabled

from vllm_ascend_spec.devices.npu import DEVICE
from vllm_ascend_spec.errors import PlatformError
from vllm_ascend_spec.patches import registry as patches
from vllm_ascend_spec.platform.capture import set_capture_sizes
from vllm_ascend_spec.platform.shared import (
    CommandLineMixin,
    DefaultsMixin,
    check_engine_config,
    set_scheduler,
)
from vllm_ascend_spec.upstream.npu_worker import STOCK_WORKER, worker_of_vllm_ascend
from vllm_ascend_spec.upstream.sequence_parallel import has_sequence_parallel_pass

if TYPE_CHECKING:
    from vllm.config import VllmConfig

WORKER = "vllm_ascend_spec.worker.npu.SpecNPUWorker"

# On import, because vllm-ascend reads its options in every process, in a worker before our code.
patches.apply("npu_platform")


class SpecNpuPlatform(CommandLineMixin, DefaultsMixin, NPUPlatform):
    """NPU platform that runs speculative decoding through our drafters and verifier."""

    @classmethod
    def check_and_update_config(cls, vllm_config: VllmConfig) -> None:
        """Validate our options and name our worker.

        Without speculation it takes the place of vllm-ascend's usual worker alone: an option may
        ask for another one, such as ``xlite_graph_config``.
        """
        check_engine_config(vllm_config, DEVICE)
        parallel = vllm_config.parallel_config
        is_left_to_us = parallel.worker_cls == "auto"
        if vllm_config.speculative_config is not None:
            require_stock_worker()
            if is_left_to_us:
                parallel.worker_cls = WORKER
        super().check_and_update_config(vllm_config)
        if is_left_to_us and parallel.worker_cls == STOCK_WORKER:
            parallel.worker_cls = WORKER
        set_capture_sizes(vllm_config, divisor_of, may_lack_streams=True)
        set_scheduler(vllm_config)


def divisor_of(vllm_config: VllmConfig) -> int:
    """Return the number that vllm-ascend requires every graph size to be a multiple of.

    The rule is that of ``vllm_ascend/platform.py:_setup_compile_backend``.
    """
    ranks = vllm_config.parallel_config.tensor_parallel_size
    # Imported here: vLLM imports its platform before it has defined this.
    from vllm.config import set_current_vllm_config

    # vllm-ascend 0.23 reads the current configuration itself.
    with set_current_vllm_config(vllm_config):
        shares = enable_sp(vllm_config) or shared_expert_dp_enabled() or enable_dsa_cp()
    return ranks if shares or has_sequence_parallel_pass(vllm_config) else 1


def require_stock_worker() -> None:
    """Raise unless vllm-ascend runs this NPU with the worker that ours extends.

    Raises:
        PlatformError: the NPU has another worker, as a 310P does.
    """
    worker = worker_of_vllm_ascend()
    if worker != STOCK_WORKER:
        raise PlatformError(
            f"vllm-ascend runs this NPU with {worker}, which vllm-ascend-spec does not know, so "
            "speculative decoding is not possible. Remedy: leave out --speculative-config, or "
            "ascend_spec in VLLM_PLUGINS."
        )
