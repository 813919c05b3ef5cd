"""A draft model in a full graph on the NPU, with more requests and tokens than the batch has.

Why: two faults of vllm-ascend 0.30.0rc2 end the engine. Where the target's graph has more requests
than the batch, ``AscendCommonAttentionMetadata.unpadded`` (attention/utils.py:320) cuts everything
back but the block table, from which a draft model reads the number of requests
(``compute_new_slot_mapping``, vLLM v1/spec_decode/utils.py:371). And
``NPUModelRunner._pad_query_start_loc_for_fia`` (worker/model_runner_v1.py:1060) gives each request
of padding K+1 tokens, but a draft model reads K+2 tokens of a real one, so the tokens add up to
more than the graph has.
How: the first pass gets the table of the batch alone, and the draft's requests of padding share
the tokens that are left.
Until: ``unpadded`` cuts the block table, too, and padding is by the tokens that are left.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from vllm_ascend_spec.compat.patching import Patches

_patches = Patches()
revert = _patches.revert


def share_tokens(
    query_start_loc: np.ndarray,  # [max_num_reqs + 2]
    num_reqs: int,
    num_reqs_padded: int,
    num_tokens_padded: int,
) -> None:
    """Let the requests after the first ``num_reqs`` share the tokens that are left, in place."""
    count = num_reqs_padded - num_reqs
    if count > 0:
        first = int(query_start_loc[num_reqs])
        ahead: np.ndarray = np.arange(1, count + 1) * (num_tokens_padded - first) // count
        query_start_loc[num_reqs + 1 : num_reqs_padded + 1] = first + ahead


def apply() -> None:
    """Install the mend once."""
    if _patches:
        return
    from vllm_ascend.spec_decode.draft_proposer import AscendDraftModelProposer
    from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

    stock = AscendDraftModelProposer.set_inputs_first_pass
    stock_pad = NPUModelRunner._pad_query_start_loc_for_fia

    def set_inputs_first_pass(self: Any, *args: Any, cad: Any, **kwargs: Any) -> Any:
        cad = copy.copy(cad)
        cad.block_table_tensor = cad.block_table_tensor[: cad.num_reqs]
        return stock(self, *args, cad=cad, **kwargs)

    def _pad_query_start_loc_for_fia(
        self: Any,
        query_start_loc: Any,
        num_tokens_padded: int,
        num_reqs_padded: int,
        num_reqs: int,
        cudagraph_runtime_mode: Any = None,
        batch_desc_num_reqs: int | None = None,
    ) -> int:
        is_draft = isinstance(self.drafter, AscendDraftModelProposer)
        is_draft = is_draft and query_start_loc is self.drafter.query_start_loc
        if not is_draft or batch_desc_num_reqs is None:
            return stock_pad(
                self,
                query_start_loc,
                num_tokens_padded,
                num_reqs_padded,
                num_reqs,
                cudagraph_runtime_mode,
                batch_desc_num_reqs,
            )
        share_tokens(query_start_loc.np, num_reqs, batch_desc_num_reqs, num_tokens_padded)
        query_start_loc.copy_to_gpu()
        return batch_desc_num_reqs

    _patches.set(NPUModelRunner, "_pad_query_start_loc_for_fia", _pad_query_start_loc_for_fia)
    _patches.set(AscendDraftModelProposer, "set_inputs_first_pass", set_inputs_first_pass)
