"""Steps of several rows per request in layers with attention sinks, on the NPU.

Why: outside of a graph, vllm-ascend 0.30.0rc2
(vllm_ascend/attention/attention_v1.py:AscendAttentionBackendImpl.forward_fused_infer_attention)
tells the operator of a layer with sinks that each request of a step that only decodes has one row.
With drafts it has several: an engine with full graphs ends as it warms up, and other rows would be
left out.
How: such a step is described to the layer as any other is, by its requests' own numbers of rows.
Until: vllm-ascend passes ``actual_seq_lengths_q``; 0.30.0rc2 is the newest release.
"""

from __future__ import annotations

import copy
from typing import Any

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm_ascend.attention.attention_v1 import (
        AscendAttentionBackendImpl as Stock,
    )
    from vllm_ascend.attention.attention_v1 import AscendAttentionState as State

    attend = Stock.forward_fused_infer_attention

    def forward_fused_infer_attention(
        self: Any,
        query: Any,
        key: Any,
        value: Any,
        attn_metadata: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if self.sinks is not None and attn_metadata.attn_state == State.DecodeOnly:
            attn_metadata = copy.copy(attn_metadata)
            # Blocks are found in the same way, and lengths are taken from the metadata.
            attn_metadata.attn_state = State.ChunkedPrefill
        return attend(self, query, key, value, attn_metadata, *args, **kwargs)

    _patches.set(Stock, "forward_fused_infer_attention", forward_fused_infer_attention)
