"""Ascend NPUs, on top of vllm-ascend."""

from __future__ import annotations

from pathlib import Path

from vllm_ascend_spec import versions
from vllm_ascend_spec.config.ascend import check_for_npu, reason_for_greedy
from vllm_ascend_spec.config.device import Device
from vllm_ascend_spec.devices import ascend_host


def find() -> bool:
    """Tell whether an Ascend device node is present that this build of vLLM can use."""
    return any(Path("/dev").glob("davinci[0-9]*")) and not versions.is_cpu_build()


DEVICE = Device(
    name="npu",
    about="an Ascend NPU",
    find=find,
    platform="vllm_ascend_spec.platform.npu.SpecNpuPlatform",
    family="ascend",
    # Ascend's fused attention takes at most 16 rows per request
    # (vllm_ascend/attention/attention_v1.py:AscendAttentionMetadataBuilder.__init__).
    max_drafts=15,
    max_tree_drafts=15,
    checks=(check_for_npu,),
    host_problem=ascend_host.host_problem,
    host_warning=ascend_host.host_warning,
    import_problem=ascend_host.import_problem,
    import_problem_elsewhere=ascend_host.import_problem_elsewhere,
    has_graphs_by_k=True,
    reason_for_greedy=reason_for_greedy,
    whole_drafts=frozenset({"eagle", "eagle3"}),
)
