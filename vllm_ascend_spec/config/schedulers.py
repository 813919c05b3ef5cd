"""Names of our schedulers, for vLLM to import."""

from __future__ import annotations

# Keys: whether K is chosen from step to step, and whether steps are scheduled ahead.
SCHEDULERS = {
    (False, False): "vllm_ascend_spec.control.scheduler.SpecScheduler",
    (False, True): "vllm_ascend_spec.control.scheduler.SpecAsyncScheduler",
    (True, False): "vllm_ascend_spec.control.adaptive_scheduler.AdaptiveScheduler",
    (True, True): "vllm_ascend_spec.control.adaptive_scheduler.AdaptiveAsyncScheduler",
}
