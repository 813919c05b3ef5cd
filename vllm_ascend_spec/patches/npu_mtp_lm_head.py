"""The output layer of MTP layers on the NPU.

Why: MTP layers draft with the target's output layer, and vLLM gives it to all of them
(vllm/v1/spec_decode/llm_base_proposer.py:SpecDecodeBaseProposer._maybe_share_lm_head). vllm-ascend
0.30.0rc2 gives it only to models with MLA
(vllm_ascend/spec_decode/llm_base_proposer.py:AscendSpecDecodeBaseProposer._maybe_share_lm_head).
MTP layers of other models whose checkpoint has no copy of it keep an output layer as it was
allocated, and no draft is accepted.
How: the target's output layer replaces theirs before vllm-ascend goes on. A model that says whether
its checkpoint had one (``has_own_lm_head``, as vllm-ascend's DeepSeek does) is left to vllm-ascend.
Until: that method does as vLLM's does; 0.30.0rc2 is the newest release.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.patches.registry import override


@override
class HeadOverride:
    """Mixin that must precede ``AscendEagleProposer`` in the bases."""

    def _maybe_share_lm_head(self: Any, model: Any) -> None:
        """Use the target ``model``'s output layer; the signature is vllm-ascend's."""
        if hasattr(model, "lm_head") and not hasattr(self.model, "has_own_lm_head"):
            self.model.lm_head = model.lm_head
            # A dict of layers, or a list, as Qwen3.5 has; MiMo has them elsewhere.
            layers = getattr(self.model.model, "layers", ())
            for layer in layers.values() if hasattr(layers, "values") else layers:
                if hasattr(layer, "shared_head"):
                    layer.shared_head.head = model.lm_head
        super()._maybe_share_lm_head(model)  # type: ignore[misc]
