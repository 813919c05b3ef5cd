"""An EAGLE head whose config lists ``layer_types`` ends the engine.

Why: vLLM numbers a head's layers after the target's, and uses a layer's number minus
``target_layer_count`` as index into the head's list
(vllm/model_executor/models/llama.py:LlamaAttention). EAGLE-3 heads get that count in their config
(vllm/model_executor/models/llama_eagle3.py:Eagle3LlamaForCausalLM), heads of the first EAGLE do not
(vllm/model_executor/models/llama_eagle.py:EagleLlamaForCausalLM): ``effective_layer_idx: 12 is out
of bounds``.
How: the count is put into their config before the head is built.
Until: ``EagleLlamaForCausalLM`` sets it; 0.33 does not.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.patches.registry import override


@override
class LayersOverride:
    """Mixin that must precede an EAGLE proposer in the bases."""

    vllm_config: Any
    draft_model_config: Any

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Set the number of target layers before the head's, then load as the bases do."""
        self.draft_model_config.hf_config.target_layer_count = (
            self.vllm_config.model_config.get_num_layers(self.vllm_config.parallel_config)
        )
        super().load_model(*args, **kwargs)  # type: ignore[misc]
