"""Find the worker class that vllm-ascend uses on the installed NPU."""

from __future__ import annotations

from vllm_ascend_spec.upstream.ranges import vllm_ascend_is

if vllm_ascend_is(">=0.30"):
    from vllm_ascend.device.hardware_profile import get_current_hardware_profile
else:
    from vllm_ascend.utils import is_310p

STOCK_WORKER = "vllm_ascend.worker.worker.NPUWorker"


def worker_of_vllm_ascend() -> str:
    """Return the qualified name of the worker class."""
    if vllm_ascend_is(">=0.30"):
        return get_current_hardware_profile().default_worker_cls
    else:
        return "vllm_ascend._310p.worker_310p.NPUWorker310" if is_310p() else STOCK_WORKER
