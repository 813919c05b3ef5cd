"""The norm of a DFlash head's keys of the text, of vLLM 0.30 on the CPU.

Why: vLLM (vllm/model_executor/models/qwen3_dflash.py:DFlashQwen3Model._normalize_context_k)
normalizes the keys of all layers in one call, with a row of weights for each layer. The CPU's
kernel takes the first layer's for all of them, so drafts of a head of several layers are wrong.
How: the same by PyTorch.
Until: vLLM's kernel for CPUs knows several rows of weights, or vLLM calls it layer by layer, as it
does on an XPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.compat.patching import Patches

if TYPE_CHECKING:
    import torch

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the mend once."""
    if _patches:
        return
    from torch.nn import functional
    from vllm.model_executor.models.qwen3_dflash import DFlashQwen3Model

    def normalized(
        self: Any,
        all_k: torch.Tensor,  # [num_layers, num_tokens, num_kv_heads, head_dim]
    ) -> torch.Tensor:
        """Return the keys, normalized by head with each layer's own weights."""
        weights = self._k_norm_weights[:, None, None]
        return functional.rms_norm(all_k, all_k.shape[-1:], eps=self._rms_norm_eps) * weights

    _patches.set(DFlashQwen3Model, "_normalize_context_k", normalized)
