"""The MTP layer of a Qwen3.5 without images has positions of three dimensions.

Why: vLLM takes M-RoPE out of the configuration of such a target
(vllm/model_executor/models/config.py:Qwen3_5ForCausalLMConfig), and leaves it in that of its draft,
which is a copy: the draft's runner makes positions [3, num_tokens], and its layer reads them as
[num_tokens]. A CPU's kernel then writes beyond the end of the queries, and the engine crashes.
How: take it out of both.
Until: vLLM does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_ascend_spec.patches.patching import Patches

if TYPE_CHECKING:
    from vllm.config import VllmConfig

_patches = Patches()
revert = _patches.revert
# Of ``rope_parameters``.
OF_IMAGES = ("mrope_section", "mrope_interleaved")


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm.model_executor.models.config import Qwen3_5ForCausalLMConfig

    stock = Qwen3_5ForCausalLMConfig.verify_and_update_config

    def verify_and_update_config(vllm_config: VllmConfig) -> None:
        stock(vllm_config)
        spec = vllm_config.speculative_config
        draft = None if spec is None else spec.draft_model_config
        if draft is None or spec.method != "mtp":
            return
        parameters = getattr(draft.hf_text_config, "rope_parameters", None) or {}
        for name in OF_IMAGES:
            parameters.pop(name, None)

    patched = staticmethod(verify_and_update_config)
    _patches.set(Qwen3_5ForCausalLMConfig, "verify_and_update_config", patched)
