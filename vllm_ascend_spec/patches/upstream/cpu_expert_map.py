"""Ranks that have some of the experts each, on a CPU.

Why: with expert parallelism a rank's kernel gets the numbers of all experts that tokens chose, and
a map to those that the rank has. vLLM's experts for a CPU
(vllm/model_executor/layers/fused_moe/experts/cpu_moe.py:CPUUnquantizedExperts.apply) take no
notice of the map: the kernel reads weights that are not there, and the process ends with a
segmentation fault, or answers are wrong.
How: numbers are mapped; a choice of another rank's expert weighs nothing here. The ranks' results
are added up, as ever.
Until: the experts use the map.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert


def own_choices(
    topk_ids: torch.Tensor,  # [num_tokens, top_k], of all experts
    topk_weights: torch.Tensor,  # [num_tokens, top_k]
    expert_map: torch.Tensor,  # [num_experts], int32; -1 is another rank's
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the choices by this rank's numbers, and their weights; a weight is 0 elsewhere."""
    own = expert_map[topk_ids.long()]
    return own.clamp(min=0).to(topk_ids.dtype), topk_weights.masked_fill(own < 0, 0)


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts

    stock = CPUUnquantizedExperts.apply
    signature = inspect.signature(stock)

    @functools.wraps(stock)
    def apply_own(*args: Any, **kwargs: Any) -> None:
        call = signature.bind(*args, **kwargs)
        given = call.arguments
        if given["expert_map"] is not None:
            if given["apply_router_weight_on_input"]:
                message = "experts of several ranks with apply_router_weight_on_input; valid: False"
                raise NotImplementedError(message)
            given["topk_ids"], given["topk_weights"] = own_choices(
                given["topk_ids"], given["topk_weights"], given["expert_map"]
            )
        stock(*call.args, **call.kwargs)

    _patches.set(CPUUnquantizedExperts, "apply", apply_own)
