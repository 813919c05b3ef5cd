"""Drafters of heads over the target's last hidden state: no KV cache, no pass of a model.

The state of the row that a request's last token was sampled from is all that such a draft needs, so
nothing is kept between steps, and requests that are preempted or cached need no care. The heads run
eagerly beside the target's graphs, on as many rows as there are requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from vllm.distributed import get_tp_group

from vllm_ascend_spec.methods.drafter import HostDrafter
from vllm_ascend_spec.methods.families.likeliest import likeliest
from vllm_ascend_spec.methods.families.sampling import DraftSampler, make_draft_sampler

if TYPE_CHECKING:
    from torch import nn
    from typing_extensions import Self

    from vllm_ascend_spec.methods.drafter import Engine
    from vllm_ascend_spec.methods.step import Drafts, DraftStep


class Picker:
    """Picks the drafts of one step; each call picks the next of every request.

    Args:
        sampler: draws them; None takes the likeliest.
    """

    def __init__(self, sampler: DraftSampler | None) -> None:
        self._sampler = sampler
        self._probs: list[torch.Tensor] = []

    def __call__(
        self,
        logits: torch.Tensor,  # [num_reqs, vocab_size]
    ) -> torch.Tensor:
        """Return a draft of each request, int64 [num_reqs]."""
        if self._sampler is None:
            return likeliest(logits)
        tokens, probs = self._sampler.draw(logits)
        self._probs.append(probs)
        return tokens

    @property
    def draws(self) -> bool:
        """Whether drafts are drawn, so that logits of the whole vocabulary are wanted."""
        return self._sampler is not None

    def probs(self) -> torch.Tensor | None:
        """Return the distributions of all drafts, float32 [num_reqs, K, vocab_size], or None."""
        return torch.stack(self._probs, dim=1) if self._probs else None


# From states [num_reqs, hidden_size], last tokens int64 [num_reqs], and K: a draft of each request
# for each of K places, int64 [num_reqs] each.
Heads = Callable[[torch.Tensor, torch.Tensor, int, Picker], list[torch.Tensor]]


class HeadsDrafter(HostDrafter):
    """Base of drafters of heads; a subclass loads them.

    Args:
        engine: what it is made from.
    """

    heads: nn.Module

    def __init__(self, engine: Engine) -> None:
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
    def create(cls, engine: Engine) -> Self:
        """Build the drafter of an engine."""
        return cls(engine)

    def load_heads(self) -> nn.Module:
        """Return the heads with their weights, on the target's device and in its dtype.

        Raises:
            ConfigError: they cannot be used.
        """
        raise NotImplementedError

    def load_model(self, target_model: nn.Module) -> None:
        """Load the heads; the target has been loaded."""
        self.heads = self.load_heads().eval().requires_grad_(False)

    @torch.inference_mode()
    def dummy_run(self, num_tokens: int, *args: Any, is_profile: bool = False, **_: Any) -> None:
        """Draft for made-up states, where memory is measured: what is captured has no heads in it.

        The further arguments are those of vllm-ascend's runner; vLLM's does not call this.
        """
        if is_profile:
            rows = min(num_tokens, self.max_num_reqs)
            hidden = torch.zeros(rows, self.hidden_size, dtype=self.dtype, device=self.device)
            tokens = torch.zeros(rows, dtype=torch.int64, device=self.device)
            self.heads(hidden, tokens, self.asked.num_drafts, Picker(None))

    def draft(self, step: DraftStep) -> Drafts:
        """Return drafts for every request of the batch, int64 [num_reqs, K]."""
        sampled = step.sampled_token_ids
        assert isinstance(sampled, list)
        if step.num_drafts == 0:
            return [[] for _ in sampled]
        # Both in one copy to the device; nothing is read back.
        places = np.stack(
            [last_rows(sampled, step), [tokens[-1] if tokens else 0 for tokens in sampled]]
        )
        rows, last = torch.from_numpy(places).to(self.device, non_blocking=True)
        picker = Picker(self._sampler_of(step))
        states = step.sample_hidden_states[rows]
        if picker.draws and self.is_split:
            share(states)
        drafts = self.heads(states, last, step.num_drafts, picker)
        self._draft_probs = picker.probs()
        return torch.stack(drafts, dim=1)

    def _sampler_of(self, step: DraftStep) -> DraftSampler | None:
        """Return what draws the drafts of a step, or None where all are the likeliest."""
        if not self.asked.samples_drafts:
            return None
        num_reqs = len(step.sampled_token_ids)
        # The token of this step is counted, so no two steps of a request begin at one place.
        lengths = step.batch.num_tokens_no_spec[:num_reqs]
        return make_draft_sampler(self.runner, step.sampling, torch.from_numpy(lengths))

    def take_last_draft_probs(self) -> torch.Tensor | None:
        """Return the distributions of the last drafts, once; None where drafts are certain."""
        probs, self._draft_probs = self._draft_probs, None
        return probs


def share(
    states: torch.Tensor,  # [num_reqs, hidden_size]
) -> None:
    """Give every tensor-parallel rank the first one's states, in place.

    Each rank has the heads whole, and verifies the first one's drafts by its own distributions. The
    states that these come from may differ in rounding: vLLM's sum over more than two ranks of a CPU
    begins, on each, with its own part. A rank that decides otherwise would go on with another text.
    """
    get_tp_group().broadcast(states, src=0)


def last_rows(sampled: list[list[int]], step: DraftStep) -> np.ndarray:
    """Return which row of ``sample_hidden_states`` each request's last token was sampled from.

    A request has a row for each of its drafts and one more; of these as many are behind its tokens
    as it has new ones. Where none is kept, in the midst of a prompt, its drafts are not used.

    Returns:
        int64 [num_reqs].
    """
    kept = np.fromiter(map(len, sampled), dtype=np.int64, count=len(sampled))
    if step.verification is None:
        return np.arange(len(sampled))
    rows = np.asarray(step.verification.num_draft_tokens, dtype=np.int64) + 1
    return np.cumsum(rows) - rows + np.maximum(kept, 1) - 1
