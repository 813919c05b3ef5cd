"""The norm of a DFlash head's keys of the text, of vLLM 0.30 on the CPU.

Why: vLLM (vllm/model_executor/models/qwen3_dflash.py:DFlashQwen3Model._normalize_context_k)
normalizes the keys of all layers in one call, with a row of weights for each layer. The CPU kernel
uses the first layer's row for all of them, so a head with several layers makes wrong drafts.
How: PyTorch ops compute the same norm, with each layer's weights.
Until: vLLM's CPU kernel supports several rows of weights, or vLLM calls it layer by layer, as it
does on an XPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.patches.patching import Patches

if TYPE_CHECKING:
    import torch

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from torch.nn import functional
    from vllm.model_executor.models.qwen3_dflash import DFlashQwen3Model

    def normalized(
        self: Any,
        all_k: torch.Tensor,  # [num_layers, num_tokens, num_kv_heads, head_dim]
    ) -> torch.Tensor:
        """Return the keys, normalized per head with each layer's own weights."""
        weights = self._k_norm_weights[:, None, None]
        return functional.rms_norm(all_k, all_k.shape[-1:], eps=self._rms_norm_eps) * weights

    _patches.set(DFlashQwen3Model, "_normalize_context_k", normalized)
