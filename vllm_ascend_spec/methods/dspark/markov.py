"""The sequential part of a DSpark head: each draft is picked with the draft before it in view."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from vllm_ascend_spec.config.confidence import uses_confidences
from vllm_ascend_spec.methods.loops.argmax import argmax
from vllm_ascend_spec.methods.loops.base import Picked

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from vllm_ascend_spec.methods.loops.sampling import DraftSampler


def keep_likeliest(
    logits: torch.Tensor,  # [num_reqs, K, draft_vocab_size]
    count: int,
) -> torch.Tensor:
    """Return the logits with minus infinity for all but the ``count`` highest of each row.

    It is what ``dspark_draft_topk`` asks for: the Markov head then chooses among these.
    """
    values, tokens = logits.topk(count, dim=-1)
    return torch.full_like(logits, float("-inf")).scatter_(-1, tokens, values)


class MarkovDrafts:
    """Picks the drafts of a block from left to right; goes before a draft loop in the bases.

    Draft ``i`` is drawn from the softmax of the row's logits plus the Markov bias of draft
    ``i - 1``, and the verifier gets that distribution. It is the draft's distribution given the
    drafts before it, as the token rule wants it (the head is that of speculators 0.9, MarkovHead in
    ``speculators/models/dspark``).

    Attributes:
        last_tokens: int32 or int64 [num_reqs], the token that each block begins with.
        confidences: float32 [num_reqs, K], the probability of each of the last drafts to be
            accepted if all before it are; None if nobody uses them.
    """

    vllm_config: VllmConfig
    model: Any
    draft_model_config: Any
    last_tokens: torch.Tensor
    join: Callable[[list[Picked]], torch.Tensor]
    confidences: torch.Tensor | None = None

    @cached_property
    def has_confidences(self) -> bool:
        """Whether the checkpoint has a confidence head and the scheduler uses it."""
        inner = getattr(self.model, "model", None)
        has_head = getattr(inner, "confidence_head", None) is not None
        return has_head and uses_confidences(self.vllm_config)

    @cached_property
    def draft_tokens(self) -> torch.Tensor | None:
        """Which tokens of the target the draft knows, int64 [draft_vocab_size]; None for all."""
        offsets = self.model.draft_id_to_target_id
        if offsets is None:
            return None
        return torch.arange(offsets.shape[0], device=offsets.device) + offsets

    def take_confidences(self) -> torch.Tensor | None:
        """Return :attr:`confidences` once."""
        found, self.confidences = self.confidences, None
        return found

    def pick_all(
        self,
        hidden: torch.Tensor,  # [num_reqs, K, hidden_size]
        sampler: DraftSampler | None,
    ) -> torch.Tensor:
        """Pick all drafts of one pass, keep their distributions and return [num_reqs, K]."""
        num_reqs, k, _ = hidden.shape
        logits = self.model.compute_draft_logits(hidden.flatten(0, 1)).view(num_reqs, k, -1)
        count = getattr(self.draft_model_config.hf_config, "dspark_draft_topk", None)
        if count is not None:
            logits = keep_likeliest(logits, count)
        before, picked, embedded = self.last_tokens[:num_reqs], [], []
        for place in range(k):
            embedded.append(self.model.markov_embed(before))
            bias = self.model.markov_bias(embedded[-1])
            picked.append(self.pick_from(logits[:, place] + bias, sampler))
            before = picked[-1][0]
        if self.has_confidences:
            # Of draft i from its row and the draft before it, so it does not depend on draft i.
            tokens = torch.stack(embedded, dim=1).flatten(0, 1)
            found = self.model.compute_confidence(hidden.flatten(0, 1), tokens)
            self.confidences = found.view(num_reqs, k)
        return self.join(picked)

    def pick_from(
        self,
        logits: torch.Tensor,  # [num_reqs, draft_vocab_size]
        sampler: DraftSampler | None,
    ) -> Picked:
        """Pick one draft per request, as a token of the target."""
        if sampler is None:
            return self.model.map_draft_to_target(argmax(logits)), None
        return sampler.draw(self.in_target_vocabulary(logits))

    def in_target_vocabulary(
        self,
        logits: torch.Tensor,  # [num_reqs, draft_vocab_size]
    ) -> torch.Tensor:
        """Return the logits of all tokens of the target, [num_reqs, vocab_size].

        Those that the draft does not know have minus infinity.
        """
        if self.draft_tokens is None:
            return logits
        wide = logits.new_full((logits.shape[0], self.model.target_vocab_size), float("-inf"))
        return wide.index_copy_(1, self.draft_tokens, logits)
