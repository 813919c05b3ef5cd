"""NVIDIA GPUs, on top of vLLM's own platform."""

from __future__ import annotations

from pathlib import Path

from vllm_ascend_spec import versions
from vllm_ascend_spec.config.cuda_trees import cause_in_text, check_for_cuda
from vllm_ascend_spec.config.device import Device
from vllm_ascend_spec.devices import cuda_host

# Device nodes of NVIDIA's driver, and of a GPU that Windows passes to Linux (WSL 2).
NODES = ("nvidia[0-9]*", "dxg")


def find() -> bool:
    """Tell whether an NVIDIA device node is present and vLLM was built for it."""
    has_node = any(any(Path("/dev").glob(node)) for node in NODES)
    return has_node and versions.installed_vllm() is not None and not versions.is_cpu_build()


DEVICE = Device(
    name="cuda",
    about="an NVIDIA GPU",
    find=find,
    platform="vllm_ascend_spec.platform.cuda.SpecCudaPlatform",
    family="vllm",
    max_drafts=64,
    # A row's bits name the root and the nodes that it sees (ops/tree_attention/__init__.py).
    max_tree_drafts=63,
    tree_target_cause=cause_in_text,
    checks=(check_for_cuda,),
    host_problem=cuda_host.host_problem,
    import_problem=cuda_host.import_problem,
    import_problem_elsewhere=cuda_host.import_problem_elsewhere,
)
