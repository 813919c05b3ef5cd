"""Keep the distributions of a request's drafts while it is preempted.

See ``control/kept_drafts.py``. They are kept in host memory, because device memory has no room
reserved for however many requests are preempted at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_ascend_spec.verification.draft_probs import with_rows

if TYPE_CHECKING:
    import torch
    from vllm.v1.core.sched.output import SchedulerOutput


class KeptProbs(NamedTuple):
    """Distributions of a request's drafts.

    Attributes:
        num_tokens: length of the text that the drafts continue.
        probs: float32 [num_steps, vocab_size].
    """

    num_tokens: int
    probs: torch.Tensor


class KeptProbsMixin:
    """Mixin for ``GPUModelRunner`` or a subclass; must come before it in the bases."""

    device: torch.device
    requests: dict[str, Any]
    use_async_scheduling: bool
    _draft_probs: torch.Tensor | None
    _draft_prob_req_ids: list[str] | None
    # Distributions of the requests that resume in this step.
    _resumed_probs: Mapping[str, torch.Tensor] = MappingProxyType({})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._kept_probs: dict[str, KeptProbs] = {}
        super().__init__(*args, **kwargs)

    def _update_states(self, scheduler_output: SchedulerOutput) -> Any:
        """Keep the distributions of requests that are preempted now; the signature is vLLM's."""
        self._keep_probs(scheduler_output)
        self._resumed_probs = self._resumed(scheduler_output) if self._kept_probs else {}
        return super()._update_states(scheduler_output)  # type: ignore[misc]

    def _keep_probs(self, scheduler_output: SchedulerOutput) -> None:
        known, known_ids = self._draft_probs, self._draft_prob_req_ids
        if known is None or known_ids is None or self.use_async_scheduling:
            return
        for req_id in scheduler_output.preempted_req_ids or ():
            request = self.requests.get(req_id)
            if req_id in known_ids and request is not None and request.generator is not None:
                probs = known[known_ids.index(req_id)].cpu()
                self._kept_probs[req_id] = KeptProbs(request.num_tokens, probs)

    def _resumed(self, scheduler_output: SchedulerOutput) -> dict[str, torch.Tensor]:
        """Return the distributions of requests whose drafts are verified in this step."""
        again = scheduler_output.scheduled_cached_reqs
        resumed: dict[str, torch.Tensor] = {}
        computed = dict(zip(again.req_ids, again.num_computed_tokens, strict=True))
        for req_id, (num_tokens, probs) in list(self._kept_probs.items()):
            scheduled = scheduler_output.num_scheduled_tokens.get(req_id, 0)
            samples = computed.get(req_id, 0) + scheduled >= num_tokens
            if samples and req_id in scheduler_output.scheduled_spec_decode_tokens:
                resumed[req_id] = probs.to(self.device)
            if samples or req_id in scheduler_output.finished_req_ids:
                del self._kept_probs[req_id]
        return resumed

    def with_resumed(self) -> tuple[torch.Tensor | None, list[str] | None]:
        """Return the distributions known in this step, and the requests that they belong to."""
        return with_rows(self._draft_probs, self._draft_prob_req_ids, self._resumed_probs)
