"""Drafters with heads on the target's last hidden state: no KV cache, no draft model.

Such a draft needs only the hidden state that a request's last token was sampled from. So nothing is
kept between steps, and preempted requests or prefix-cache hits need no special handling. The heads
run eagerly, outside the target's graphs, on one row per request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from vllm.distributed import get_tp_group

from vllm_ascend_spec.methods.drafter import HostDrafter
from vllm_ascend_spec.methods.drafts_trees import DraftsTreesMixin
from vllm_ascend_spec.methods.loops.argmax import argmax
from vllm_ascend_spec.methods.loops.sampling import DraftSampler, make_draft_sampler
from vllm_ascend_spec.methods.tree_drafts import TreeDrafts
from vllm_ascend_spec.ops.send import send

if TYPE_CHECKING:
    from torch import nn
    from typing_extensions import Self

    from vllm_ascend_spec.methods.drafter import DrafterContext
    from vllm_ascend_spec.methods.step import Drafts, DraftStep


class Picker:
    """Picks the drafts of one step; each call picks the next draft of every request.

    Args:
        sampler: samples the drafts; with None they are greedy.
        tree: notes the likeliest tokens of each draft; None for chains.
    """

    def __init__(self, sampler: DraftSampler | None, tree: TreeDrafts | None = None) -> None:
        self._sampler = sampler
        self._tree = tree
        self._probs: list[torch.Tensor] = []

    def __call__(
        self,
        logits: torch.Tensor,  # [num_reqs, vocab_size]
    ) -> torch.Tensor:
        """Return one draft per request, int64 [num_reqs]."""
        if self._tree is not None:
            return self._tree.take(logits)[:, 0]
        if self._sampler is None:
            return argmax(logits)
        tokens, probs = self._sampler.draw(logits)
        if probs is not None:
            self._probs.append(probs)
        return tokens

    @property
    def draws(self) -> bool:
        """Whether drafts are sampled or ranked, which needs logits of the whole vocabulary."""
        return self._sampler is not None or self._tree is not None

    def probs(self) -> torch.Tensor | None:
        """Return the distributions of all drafts, float32 [num_reqs, K, vocab_size], or None."""
        return torch.stack(self._probs, dim=1) if self._probs else None


# Takes states [num_reqs, hidden_size], last tokens int64 [num_reqs], K and a picker; returns K
# tensors int64 [num_reqs], one for each draft position.
Heads = Callable[[torch.Tensor, torch.Tensor, int, Picker], list[torch.Tensor]]


class HeadsDrafter(DraftsTreesMixin, HostDrafter):
    """Base class of drafters with heads; a subclass loads the heads.

    Args:
        engine: the engine that the drafter is for.

    Attributes:
        num_heads: their number; set by :meth:`load_heads`.
    """

    heads: nn.Module
    num_heads: int | None = None
    shares_noise = True

    def __init__(self, engine: DrafterContext) -> None:
        config = engine.vllm_config
        self.runner = engine.runner
        self.device = engine.device
        self.asked = engine.speculation
        self.load_config = config.load_config
        self.dtype = config.model_config.dtype
        self.hidden_size = config.model_config.get_hidden_size()
        self.vocab_size = config.model_config.get_vocab_size()
        self.max_num_reqs = config.scheduler_config.max_num_seqs
        self.is_split = config.parallel_config.tensor_parallel_size > 1
        self._draft_probs: torch.Tensor | None = None

    @classmethod
    def create(cls, engine: DrafterContext) -> Self:
        """Build the drafter of an engine."""
        return cls(engine)

    def load_heads(self) -> nn.Module:
        """Return the heads with their weights, on the target's device and in its dtype.

        Raises:
            ConfigError: the heads cannot be used.
        """
        raise NotImplementedError

    def load_model(self, target_model: nn.Module) -> None:
        """Load the heads; the target is already loaded."""
        self.heads = self.load_heads().eval().requires_grad_(False)
        self.set_up_tree(self.asked, TreeDrafts.by_depth, self.num_heads)

    @torch.inference_mode()
    def dummy_run(self, num_tokens: int, *args: Any, is_profile: bool = False, **_: Any) -> None:
        """Draft from dummy states while memory is profiled; no captured graph contains heads.

        The other arguments are those of vllm-ascend's runner; vLLM's does not call this.
        """
        if is_profile:
            rows = min(num_tokens, self.max_num_reqs)
            hidden = torch.zeros(rows, self.hidden_size, dtype=self.dtype, device=self.device)
            tokens = torch.zeros(rows, dtype=torch.int64, device=self.device)
            self.heads(hidden, tokens, self.asked.max_k, Picker(None))

    def draft(self, step: DraftStep) -> Drafts:
        """Return drafts for every request of the batch, int64 [num_reqs, K]."""
        sampled = step.sampled_token_ids
        assert isinstance(sampled, list)
        num_steps = self.num_steps(step.k)
        if step.k == 0:
            return [[] for _ in sampled]
        # One copy to the device for both; nothing is read back.
        places = np.stack(
            [last_rows(sampled, step), [tokens[-1] if tokens else 0 for tokens in sampled]]
        )
        rows, last = send(torch.from_numpy(places), self.device)
        picker = Picker(self._sampler_of(step), self.tree)
        states = step.sample_hidden_states[rows]
        if picker.draws and self.is_split:
            share(states)
        drafts = self.heads(states, last, num_steps, picker)
        if self.tree is not None:
            return self.tree.lay_out()
        self._draft_probs = picker.probs()
        return torch.stack(drafts, dim=1)

    def _sampler_of(self, step: DraftStep) -> DraftSampler | None:
        """Return the sampler for the drafts of a step, or None if all drafts are greedy."""
        if not self.asked.samples_drafts:
            return None
        return make_draft_sampler(self.runner, step.sampling, self.asked.verify_backend)

    def take_last_draft_probs(self) -> torch.Tensor | None:
        """Return the distributions of the last drafts once; None if the drafts are greedy."""
        probs, self._draft_probs = self._draft_probs, None
        return probs


def share(
    states: torch.Tensor,  # [num_reqs, hidden_size]
) -> None:
    """Broadcast rank 0's states to all tensor-parallel ranks, in place.

    Each rank holds whole heads and verifies rank 0's drafts with its own draft distributions. The
    states behind these may differ in rounding: vLLM's all-reduce over more than two CPU ranks
    starts on each rank with its own part. A rank that decides differently would continue with
    another text.
    """
    get_tp_group().broadcast(states, src=0)


def last_rows(sampled: list[list[int]], step: DraftStep) -> np.ndarray:
    """Return the row of ``sample_hidden_states`` that each request's last token was sampled from.

    A request has one row per draft and one more. Its n new tokens were sampled from the first n of
    these rows. A request in the middle of prefill has no new token, and its drafts are not used.

    Returns:
        int64 [num_reqs].
    """
    kept = np.fromiter(map(len, sampled), dtype=np.int64, count=len(sampled))
    if step.verification is None:
        return np.arange(len(sampled))
    rows = np.asarray(step.verification.num_draft_tokens, dtype=np.int64) + 1
    return np.cumsum(rows) - rows + np.maximum(kept, 1) - 1
