"""vLLM's CPU platform with our worker."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from vllm.platforms.cpu import CpuPlatform

from vllm_ascend_spec.config.resolved import speculation_of
from vllm_ascend_spec.devices.cpu import DEVICE, refuse_state
from vllm_ascend_spec.log import log_once
from vllm_ascend_spec.platform.shared import (
    CommandLineMixin,
    DefaultsMixin,
    check_engine_config,
    set_scheduler,
)
from vllm_ascend_spec.upstream.limits import NO_MLA_ON_CPU, NO_TREES

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.config.kernel import IrOpPriorityConfig

# vLLM's variables for binding threads to cores, and for treating cores as NUMA nodes.
BIND, NO_BINDING = "VLLM_CPU_OMP_THREADS_BIND", "nobind"
SIMULATED_NODES = "VLLM_CPU_SIM_MULTI_NUMA"
WORKER = "vllm_ascend_spec.worker.cpu.SpecCPUWorker"
TREES = "vllm_ascend_spec.worker.cpu_tree_attention.TreeAttentionBackend"


class SpecCpuPlatform(CommandLineMixin, DefaultsMixin, CpuPlatform):
    """CPU platform that runs speculative decoding through our drafters and verifier."""

    @classmethod
    def check_and_update_config(cls, vllm_config: VllmConfig) -> None:
        """Validate our options and, unless another worker is named, name ours."""
        check_engine_config(vllm_config, DEVICE)
        check_states(vllm_config)
        let_workers_share_a_node(vllm_config)
        avoid_amx_attention(vllm_config)
        if vllm_config.parallel_config.worker_cls == "auto":
            vllm_config.parallel_config.worker_cls = WORKER
        wanted = vllm_config.parallel_config.distributed_executor_backend
        before = vllm_config.scheduler_config.max_num_batched_tokens
        super().check_and_update_config(vllm_config)
        schedule_whole_prompts(vllm_config, before)
        if wanted == "uni" and can_run_in_the_engine(vllm_config):
            vllm_config.parallel_config.distributed_executor_backend = "uni"
        set_scheduler(vllm_config)

    @classmethod
    def get_attn_backend_cls(cls, *args: Any, **kwargs: Any) -> str:
        """Return vLLM's backend, with the attention of trees where vLLM's own takes any."""
        # In every engine: vLLM keeps the answer for later engines of the process.
        found = super().get_attn_backend_cls(*args, **kwargs)
        return TREES if NO_TREES is None and found.endswith(".CPUAttentionBackend") else found

    @classmethod
    def import_ir_kernels(cls) -> None:
        """Register vLLM's kernels, and its RMS norm kernels, which it does not offer on a CPU."""
        super().import_ir_kernels()
        from vllm_ascend_spec.platform import cpu_norm  # noqa: F401

    @classmethod
    def get_default_ir_op_priority(cls, vllm_config: VllmConfig) -> IrOpPriorityConfig:
        """Prefer the C++ norm kernels in eager mode; Inductor generates better ones itself."""
        from vllm.config.compilation import CompilationMode

        found = super().get_default_ir_op_priority(vllm_config)
        if vllm_config.compilation_config.mode == CompilationMode.NONE:
            cls.import_ir_kernels()
            from vllm_ascend_spec.platform.cpu_norm import PROVIDER

            found.rms_norm.insert(0, PROVIDER)
            found.fused_add_rms_norm.insert(0, PROVIDER)
        return found


def check_states(vllm_config: VllmConfig) -> None:
    """Refuse speculation for a hub target with recurrent state, once vLLM has its config.

    Raises:
        ConfigError: the target has such layers; names its architecture.
    """
    spec, model = vllm_config.speculative_config, vllm_config.model_config
    if spec is not None and model is not None and (model.is_hybrid or model.is_attention_free):
        refuse_state(speculation_of(vllm_config).method, model.architecture)


def let_workers_share_a_node(vllm_config: VllmConfig) -> None:
    """Turn thread binding off if there are more workers than memory nodes.

    By default vLLM binds each worker's threads to a node of its own, and would end with
    "Not enough allowed NUMA nodes" (vllm/utils/ompmultiprocessing.py:OMPProcessManager).
    """
    from vllm import envs
    from vllm.utils.cpu_resource_utils import get_visible_memory_node

    workers = vllm_config.parallel_config.local_world_size
    if workers == 1 or any(name in os.environ for name in (BIND, SIMULATED_NODES)):
        return
    nodes = len(get_visible_memory_node())
    if nodes < workers:
        os.environ[BIND] = NO_BINDING
        envs.disable_envs_cache()  # an earlier engine of this process has filled it
        log_once(
            logging.WARNING,
            f"{BIND}={NO_BINDING} is set: {workers} workers share {nodes} memory "
            f"node{'s' if nodes > 1 else ''}, and vLLM would bind each to one of its own.",
        )


def avoid_amx_attention(vllm_config: VllmConfig) -> None:
    """Choose vLLM's plain kernels for multi-head latent attention that is not in bfloat16.

    Where a CPU has AMX, vLLM 0.30 to 0.33 take ``AMX_MLA`` whatever the dtype
    (vllm/platforms/cpu.py:CpuPlatform.get_attn_backend_cls). Those kernels take bfloat16 alone
    (vllm/v1/attention/backends/mla/amx_mla.py:AMXMLABackend), and the engine ends with "expect
    weight to be bfloat16" while it loads the model, without speculation, too.
    """
    import torch
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    model, attention = vllm_config.model_config, vllm_config.attention_config
    if NO_MLA_ON_CPU or model is None or not model.use_mla or attention.backend is not None:
        return
    if model.dtype != torch.bfloat16:
        attention.backend = AttentionBackendEnum["CPU_MLA"]


def schedule_whole_prompts(vllm_config: VllmConfig, batched_before: int) -> None:
    """Let steps be as long as prompts where vLLM has turned chunked prefill off.

    For multi-head latent attention it does so, and raises ``max_num_batched_tokens``
    (vllm/platforms/cpu.py:CpuPlatform.check_and_update_config). With speculation it has set
    ``max_num_scheduled_tokens`` before (vllm/config/vllm.py:VllmConfig.__post_init__): a prompt
    that is longer would wait for ever, and all requests behind it.

    Args:
        vllm_config: the engine's configuration, as vLLM has changed it.
        batched_before: ``max_num_batched_tokens`` before that.
    """
    config = vllm_config.scheduler_config
    if config.max_num_scheduled_tokens is not None:
        config.max_num_scheduled_tokens += config.max_num_batched_tokens - batched_before


def can_run_in_the_engine(vllm_config: VllmConfig) -> bool:
    """Tell whether the worker may run in the engine's process.

    vLLM gives every CPU worker a process of its own, to set up OpenMP there
    (vllm/platforms/cpu.py:CpuPlatform.check_and_update_config). A step then costs three round trips
    between two processes that spin while they wait, more with speculation than without. With one
    worker and ``OMP_NUM_THREADS`` set by the user there is nothing to set up.
    """
    one_worker = vllm_config.parallel_config.world_size == 1
    return one_worker and bool(os.environ.get("OMP_NUM_THREADS"))
