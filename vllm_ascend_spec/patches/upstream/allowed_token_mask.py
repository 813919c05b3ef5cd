"""``allowed_token_ids`` of one request applied to another.

Why: vLLM 0.30 (vllm/v1/worker/gpu_input_batch.py:InputBatch) keeps one mask row per batch slot.
``condense`` copies a row and does not clear the old one, ``add_request`` does not clear the row of
a request that allows all tokens, and ``swap_states`` swaps rows through views, so both rows end up
equal. A slot that a restricted request has left then restricts its next request, as soon as any
other request has ``allowed_token_ids``. This happens without speculation too, but more often with
it, because requests of a batch end at different steps.
How: a new request's row is cleared, and swapped rows are corrected.
Until: vLLM 0.31, which clears the row that ``condense`` leaves and swaps copies.
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
    from vllm.v1.worker.gpu_input_batch import InputBatch

    stock_add = InputBatch.add_request
    stock_swap = InputBatch.swap_states

    def add_request(self: Any, request: Any) -> int:
        index = stock_add(self, request)
        parameters, mask = request.sampling_params, self.allowed_token_ids_mask_cpu_tensor
        if mask is not None and not (parameters and parameters.allowed_token_ids):
            mask[index].fill_(False)
        return index

    def swap_states(self: Any, i1: int, i2: int) -> None:
        mask = self.allowed_token_ids_mask_cpu_tensor
        rows = None if mask is None else mask[[i2, i1]].clone()
        stock_swap(self, i1, i2)
        if mask is not None:
            mask[[i1, i2]] = rows

    _patches.set(InputBatch, "add_request", add_request)
    _patches.set(InputBatch, "swap_states", swap_states)
