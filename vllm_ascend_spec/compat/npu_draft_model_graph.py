"""The graph of a draft model on the NPU.

Why: vllm-ascend 0.30.0rc2 wraps the draft's graph at the end of
``AscendSpecDecodeBaseProposer._maybe_share_lm_head`` (spec_decode/llm_base_proposer.py:573).
``AscendDraftModelProposer`` inherits vLLM's empty method of that name first, so with FULL graphs
the draft is never wrapped, and the first step calls what only a graph has.
How: the method of vllm-ascend's base class; it shares no head with a draft model.
Until: ``AscendDraftModelProposer`` names its bases the other way round, or wraps elsewhere.
"""

from __future__ import annotations

from vllm_ascend_spec.compat.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the mend once."""
    if _patches:
        return
    from vllm_ascend.spec_decode.draft_proposer import AscendDraftModelProposer
    from vllm_ascend.spec_decode.llm_base_proposer import AscendSpecDecodeBaseProposer

    method = AscendSpecDecodeBaseProposer._maybe_share_lm_head
    _patches.set(AscendDraftModelProposer, "_maybe_share_lm_head", method)
