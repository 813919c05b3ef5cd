"""The graph of a draft model on the NPU.

Why: vllm-ascend 0.30.0rc2 wraps the draft's graph at the end of a method that shares heads
(vllm_ascend/spec_decode/llm_base_proposer.py:AscendSpecDecodeBaseProposer._maybe_share_lm_head).
``AscendDraftModelProposer`` inherits vLLM's empty method of that name first, so with FULL graphs
the draft is never wrapped, and the first step calls a method that only a graph has.
How: the method of vllm-ascend's base class is called; it shares no head with a draft model.
Until: ``AscendDraftModelProposer`` lists its bases in the other order, or wraps elsewhere;
0.30.0rc2 is the newest release.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.patches.registry import override


@override
class GraphOverride:
    """Mixin that must precede ``AscendDraftModelProposer`` in the bases."""

    def _maybe_share_lm_head(self: Any, target_language_model: Any) -> None:
        from vllm_ascend.spec_decode.llm_base_proposer import AscendSpecDecodeBaseProposer

        AscendSpecDecodeBaseProposer._maybe_share_lm_head(self, target_language_model)
