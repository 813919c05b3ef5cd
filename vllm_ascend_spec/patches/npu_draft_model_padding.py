"""A draft model in a full graph on the NPU, with more tokens than the batch has.

Why: vllm-ascend 0.30.0rc2
(vllm_ascend/worker/model_runner_v1.py:NPUModelRunner._pad_query_start_loc_for_fia) gives each
padding request K+1 tokens, but a draft model reads K+2 tokens of a real one, so the total exceeds
the graph's tokens. The engine ends.
How: the draft's padding requests share the remaining tokens.
Until: vllm-ascend pads by the remaining tokens; 0.30.0rc2 is the newest release.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vllm_ascend_spec.patches.registry import override


@override
class PaddingOverride:
    """Mixin that must precede ``NPUModelRunner`` in the bases."""

    drafter: Any

    def _pad_query_start_loc_for_fia(
        self,
        query_start_loc: Any,
        num_tokens_padded: int,
        num_reqs_padded: int,
        num_reqs: int,
        cudagraph_runtime_mode: Any = None,
        batch_desc_num_reqs: int | None = None,
    ) -> int:
        """Pad the requests' starts in place, and return the padded number of requests."""
        from vllm_ascend.spec_decode.draft_proposer import AscendDraftModelProposer

        is_draft = isinstance(self.drafter, AscendDraftModelProposer)
        is_draft = is_draft and query_start_loc is self.drafter.query_start_loc
        if is_draft and batch_desc_num_reqs is not None:
            share_tokens(query_start_loc.np, num_reqs, batch_desc_num_reqs, num_tokens_padded)
            query_start_loc.copy_to_gpu()
            return batch_desc_num_reqs
        return super()._pad_query_start_loc_for_fia(  # type: ignore[misc]
            query_start_loc,
            num_tokens_padded,
            num_reqs_padded,
            num_reqs,
            cudagraph_runtime_mode,
            batch_desc_num_reqs,
        )


def share_tokens(
    query_start_loc: np.ndarray,  # [max_num_reqs + 2]
    num_reqs: int,
    num_reqs_padded: int,
    num_tokens_padded: int,
) -> None:
    """Let the requests after the first ``num_reqs`` share the remaining tokens, in place."""
    count = num_reqs_padded - num_reqs
    if count > 0:
        first = int(query_start_loc[num_reqs])
        ahead: np.ndarray = np.arange(1, count + 1) * (num_tokens_padded - first) // count
        query_start_loc[num_reqs + 1 : num_reqs_padded + 1] = first + ahead
