"""An EAGLE-3 head without an output layer of its own, on the NPU.

Why: such a head should use the target's output layer, as in vLLM. vllm-ascend 0.30.0rc2 shares it
only with heads of the first EAGLE, DFlash and DSpark
(vllm_ascend/spec_decode/llm_base_proposer.py:AscendSpecDecodeBaseProposer._maybe_share_lm_head).
The head's output layer stays as it was allocated, and no draft is accepted.
How: the target's output layer replaces the head's before vllm-ascend goes on.
Until: that method covers ``eagle3``; 0.30.0rc2 is the newest release.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.patches.registry import override


@override
class HeadOverride:
    """Mixin that must precede ``AscendEagleProposer`` in the bases."""

    def _maybe_share_lm_head(self: Any, model: Any) -> None:
        """Use the target ``model``'s output layer; the signature is vllm-ascend's."""
        if not getattr(self.model, "has_own_lm_head", True):
            self.model.lm_head = model.lm_head
        super()._maybe_share_lm_head(model)  # type: ignore[misc]
