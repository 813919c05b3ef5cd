"""min_p, logit_bias and logits processors together with speculative decoding.

Why: with speculation on, vLLM builds no processor but min_tokens
(vllm/v1/sample/logits_processor/__init__.py:build_logitsprocs), because its rejection sampler
cannot apply the others to the draft rows. Ours can (verification/processors.py).
How: build the same processors as without speculation, and refuse at start a custom one whose state
cannot be evaluated per row.
Until: vLLM's V1 runner applies them itself. That of 0.31 to 0.33 does not.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import Any

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm.v1.sample import logits_processor as stock
    from vllm.v1.worker import gpu_model_runner

    from vllm_ascend_spec.verification.min_tokens import MinTokens
    from vllm_ascend_spec.verification.processors import require_row_support

    def build_logitsprocs(
        vllm_config: Any,
        device: Any,
        is_pin_memory: bool,
        is_pooling_model: bool,
        custom_logitsprocs: Sequence[Any] = (),
    ) -> Any:
        if is_pooling_model or vllm_config.speculative_config is None:
            return stock.build_logitsprocs(
                vllm_config, device, is_pin_memory, is_pooling_model, custom_logitsprocs
            )
        custom = stock._load_custom_logitsprocs(custom_logitsprocs)
        for processor in custom:
            require_row_support(processor)
        builtin = (
            MinTokens if cls is stock.MinTokensLogitsProcessor else cls
            for cls in stock.BUILTIN_LOGITS_PROCESSORS
        )
        classes = itertools.chain(builtin, custom)
        built = [cls(vllm_config, device, is_pin_memory) for cls in classes]
        return stock.LogitsProcessors(built)

    _patches.set(gpu_model_runner, "build_logitsprocs", build_logitsprocs)
    # vllm-ascend's runner rebuilds its batch and holds its own reference to the function.
    ascend = sys.modules.get("vllm_ascend.worker.model_runner_v1")
    if ascend is not None:
        _patches.set(ascend, "build_logitsprocs", build_logitsprocs)
