"""Requests with min_p or logit_bias while speculation is on.

Why: ``SamplingParams._validate_spec_decode`` (sampling_params.py:1038) of vLLM 0.30 refuses them,
because its rejection sampler ignores both. Our verifier applies them.
How: that check passes; all the others stay.
Until: vLLM's V1 runner applies them itself.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.compat.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the mend once."""
    if _patches:
        return
    from vllm.sampling_params import SamplingParams

    def accept(self: Any, speculative_config: Any) -> None:
        return None

    _patches.set(SamplingParams, "_validate_spec_decode", accept)
