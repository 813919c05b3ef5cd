"""Models without images whose layers have heads of several sizes, on the NPU: Gemma 4.

Why: vllm-ascend 0.30.0rc2 fills tables of cosines before each step
(vllm_ascend/ops/rotary_embedding.py:update_cos_sin). They are as wide as the widest head, and are
filled from the rotary embedding that was made first, which may be a narrower one's. So they do not
take what is written to them, and no engine starts, with speculation or without. Gemma 4's layers
read their own embedding's cosines (``AscendGemma4RotaryEmbedding``), not these tables.
How: such a model gets no tables, as a model with images gets none.
Until: vllm-ascend makes none for such a model; 0.30.0rc2 is the newest release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_ascend_spec.patches.patching import Patches

if TYPE_CHECKING:
    import torch
    from vllm.config import ModelConfig, VllmConfig

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm_ascend.worker import model_runner_v1

    stock = model_runner_v1.set_cos_and_sin

    def set_cos_and_sin(
        vllm_config: VllmConfig,
        max_num_reqs: int,
        decode_token_per_req: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        if not has_heads_of_several_sizes(vllm_config.model_config):
            stock(vllm_config, max_num_reqs, decode_token_per_req, dtype, device)

    _patches.set(model_runner_v1, "set_cos_and_sin", set_cos_and_sin)


def has_heads_of_several_sizes(model: ModelConfig) -> bool:
    """Tell whether the heads of some of a model's layers are wider than those of others."""
    each = model.model_arch_config.per_layer_overrides or ()
    return any("head_size" in layer for layer in each)
