"""Models without images whose heads are rotated in part, on the NPU: Qwen3.5, Qwen3-Next.

Why: vllm-ascend 0.30.0rc2 makes tables of cosines as wide as a whole head
(vllm_ascend/ops/rotary_embedding.py:set_cos_and_sin) unless the configuration has
``partial_rotary_factor`` itself. transformers 5 has it in ``rope_parameters``, so the tables do not
take what is written to them, and no engine starts.
How: the configuration gets it while the tables are made.
Until: vllm-ascend reads ``rope_parameters``; 0.30.0rc2 is the newest release.
"""

from __future__ import annotations

import functools
from typing import Any

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert
FACTOR = "partial_rotary_factor"


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm_ascend.worker import model_runner_v1 as worker

    stock = worker.set_cos_and_sin

    @functools.wraps(stock)
    def set_cos_and_sin(vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        config = vllm_config.model_config.hf_text_config
        factor = (getattr(config, "rope_parameters", None) or {}).get(FACTOR)
        if factor is None or hasattr(config, FACTOR):
            stock(vllm_config, *args, **kwargs)
            return
        setattr(config, FACTOR, factor)
        try:
            stock(vllm_config, *args, **kwargs)
        finally:
            delattr(config, FACTOR)

    _patches.set(worker, "set_cos_and_sin", set_cos_and_sin)
