"""``min_tokens`` with drafts and asynchronous scheduling.

Why: vLLM extends a request's output by a place for each draft, as if all were accepted
(vllm/v1/worker/gpu_model_runner.py:GPUModelRunner._update_states). It corrects that before it
samples, but only for penalties, bad words, thinking budgets and custom processors
(vllm/v1/worker/gpu_input_batch.py:InputBatch._make_sampling_metadata). With ``min_tokens`` alone an
answer seems longer than it is, and may stop too early.
How: outputs are corrected for ``min_tokens``, too. ``spec_logits_processors`` builds a processor
that does not count those places.
Until: vLLM corrects them. The method is the same in 0.23 to 0.33.
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

    from vllm_ascend_spec.verification.min_tokens import MinTokens

    stock = InputBatch._make_sampling_metadata

    def make_sampling_metadata(self: Any) -> Any:
        asked = self.logitsprocs_need_output_token_ids
        counts = (isinstance(p, MinTokens) and p.min_toks for p in self.logitsprocs.all)
        self.logitsprocs_need_output_token_ids = asked or any(counts)
        try:
            return stock(self)
        finally:
            self.logitsprocs_need_output_token_ids = asked

    _patches.set(InputBatch, "_make_sampling_metadata", make_sampling_metadata)
