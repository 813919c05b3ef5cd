"""Restore the generators of seeded requests during chunked prefill.

For each chunk but the last, vLLM's runner samples a token, throws it away, and rewinds the
request's generator by ``set_offset(get_offset() - 4)`` (vllm/v1/worker/gpu_model_runner.py:
GPUModelRunner._bookkeeping_sync; vllm-ascend has the same in vllm_ascend/worker/model_runner_v1.py:
NPUModelRunner._bookkeeping_sync). A CPU generator has no offset, so the engine ends. On a GPU or an
NPU our verifier draws another amount (``verification/uniforms.py``), so the tokens of a seeded
request would depend on how its prompt was chunked. Here generators go back to their saved states,
on every device and however much was drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


class KeepGeneratorsMixin:
    """Mixin for ``GPUModelRunner`` or a subclass; must come before it in the bases."""

    input_batch: Any
    discard_request_mask: Any

    def discarded_generators(self) -> dict[int, torch.Generator]:
        """Return the generators, by request index, of requests whose token is thrown away."""
        batch = self.input_batch
        if not batch.generators:
            return {}
        # Entries past num_reqs are stale.
        discarded = np.nonzero(self.discard_request_mask.np[: batch.num_reqs])[0].tolist()
        return {index: batch.generators[index] for index in discarded if index in batch.generators}

    def _sample(self, *args: Any, **kwargs: Any) -> Any:
        saved = [(own, own.get_state()) for own in self.discarded_generators().values()]
        output = super()._sample(*args, **kwargs)  # type: ignore[misc]
        for generator, state in saved:
            generator.set_state(state)
        return output

    def _bookkeeping_sync(self, *args: Any, **kwargs: Any) -> Any:
        """Hide those generators from the stock bookkeeping, so that it does not rewind them."""
        hidden = self.discarded_generators()
        for index in hidden:
            del self.input_batch.generators[index]
        try:
            return super()._bookkeeping_sync(*args, **kwargs)  # type: ignore[misc]
        finally:
            self.input_batch.generators.update(hidden)
