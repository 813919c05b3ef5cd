"""An EAGLE-3 head without an output layer of its own, on the NPU.

Why: such a head is to use the target's, as in vLLM. vllm-ascend 0.30.0rc2 shares it with heads of
the first EAGLE, with DFlash and with DSpark only (vllm_ascend/spec_decode/llm_base_proposer.py:
AscendSpecDecodeBaseProposer._maybe_share_lm_head): the output layer stays as it was allocated, and
no draft is accepted.
How: the target's is put in its place before vllm-ascend goes on.
Until: that method knows ``eagle3``; 0.30.0rc2 is the newest release.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.compat.registry import override


@override
class HeadOverride:
    """Mix into ``AscendEagleProposer``, before it in the bases."""

    def _maybe_share_lm_head(self: Any, model: Any) -> None:
        """Take the output layer of the target ``model``; the signature is vllm-ascend's."""
        if not getattr(self.model, "has_own_lm_head", True):
            self.model.lm_head = model.lm_head
        super()._maybe_share_lm_head(model)  # type: ignore[misc]
