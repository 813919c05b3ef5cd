"""Requests with min_p or logit_bias while speculation is on.

Why: vLLM (vllm/sampling_params.py:SamplingParams._validate_spec_decode) refuses them, because its
rejection sampler ignores both. Our verifier applies them.
How: that check passes; all the others stay.
Until: vLLM's V1 runner applies them itself. 0.31 to 0.33 refuse them, too.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm.sampling_params import SamplingParams

    def accept(self: Any, speculative_config: Any) -> None:
        return None

    _patches.set(SamplingParams, "_validate_spec_decode", accept)
