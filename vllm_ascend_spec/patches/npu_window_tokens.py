"""The number of keys in a sliding window, on the NPU.

Why: of a layer with a window of w tokens, vLLM's rows see the keys i-w+1 to i, and blocks of the KV
cache with earlier ones are freed. vllm-ascend 0.30.0rc2
(vllm_ascend/attention/attention_v1.py:AscendAttentionBackendImpl) gives the operators of attention
``pre_tokens=w`` with ``sparse_mode=4``, with which they read the keys i-w to i: Ascend/op-plugin,
``npu_fusion_attention`` (its example masks ``tril(k=-pre_tockens-1)``), and cann/ops-transformer,
``fia_kernel_nonquant.h`` (``s2FirstToken = s1FirstToken - preTokenLeftUp``). One key too many
changes answers, and where a block was freed just before, that key may be another request's: then an
answer depends on what runs beside it.
How: a window is one token shorter where it becomes ``pre_tokens``.
Until: vllm-ascend passes ``w - 1``; 0.30.0rc2 is the newest release.
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
    from vllm_ascend.attention.attention_v1 import AscendAttentionBackendImpl as Stock

    build = Stock.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        build(self, *args, **kwargs)
        # A window of one token would become 0, which is taken for none.
        if self.sliding_window is not None and self.sliding_window > 1:
            self.sliding_window -= 1

    _patches.set(Stock, "__init__", __init__)
