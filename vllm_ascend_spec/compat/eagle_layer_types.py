"""An EAGLE head whose config lists ``layer_types`` ends the engine.

Why: vLLM numbers a head's layers behind the target's and looks their number up in the head's own
list, less ``target_layer_count`` (vllm/model_executor/models/llama.py:LlamaAttention). Heads of
EAGLE-3 have that in their config (vllm/model_executor/models/llama_eagle3.py:
Eagle3LlamaForCausalLM), those of the first EAGLE do not (vllm/model_executor/models/llama_eagle.py:
EagleLlamaForCausalLM): ``effective_layer_idx: 12 is out of bounds``.
How: it is put into their config before the head is built.
Until: ``EagleLlamaForCausalLM`` does it; 0.33 does not.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.compat.registry import override


@override
class LayersOverride:
    """Mix into a proposer of EAGLE's, before it in the bases."""

    vllm_config: Any
    draft_model_config: Any

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Say behind how many layers the head's own are numbered, then load as the bases do."""
        self.draft_model_config.hf_config.target_layer_count = (
            self.vllm_config.model_config.get_num_layers(self.vllm_config.parallel_config)
        )
        super().load_model(*args, **kwargs)  # type: ignore[misc]
