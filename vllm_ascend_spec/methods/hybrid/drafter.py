"""The drafter of method ``hybrid``: suffix trees in front of a drafter with a model.

The model's draft step 1 reads all tokens of every engine step, so its KV cache is always up to
date. Draft steps 2 to K run unless every request in the batch takes the trees' drafts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from vllm_ascend_spec.config.schedule import has_lockstep_replicas
from vllm_ascend_spec.methods.hybrid.estimate import Drafts
from vllm_ascend_spec.methods.hybrid.request_state import (
    Estimators,
    RequestState,
    by_model,
    by_trees,
)
from vllm_ascend_spec.methods.suffix.drafter import Found, SuffixDrafter, samples
from vllm_ascend_spec.ops.send import send

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

    from vllm_ascend_spec.config.tree_shape import Tree
    from vllm_ascend_spec.methods.drafter import DrafterContext
    from vllm_ascend_spec.methods.step import DraftStep


class HybridMixin:
    """Mixin for drafters with our draft loop; goes before them in the bases.

    Attributes:
        suffix: drafter that uses suffix trees.
        by_suffix: drafts of the suffix trees, by index of the request that takes them in this step.
    """

    suffix: SuffixDrafter
    forecasts: Estimators
    by_suffix: dict[int, Drafts]
    keeps_cache_only: bool
    _shape: Tree | None = None
    _longest_chain: int
    vllm_config: Any
    uses_own_loop: bool
    _enable_probabilistic_draft_probs: bool

    @classmethod
    def create(cls, engine: DrafterContext) -> Self:
        """Build the drafter of an engine.

        Raises:
            ConfigError: an option is not supported by the model's method here.
        """
        drafter = super().create(engine)  # type: ignore[misc]
        drafter.suffix = SuffixDrafter.create(engine)
        drafter.forecasts = Estimators()
        drafter.by_suffix = {}
        return drafter

    def draft(self, step: DraftStep) -> list[list[int]] | torch.Tensor:
        """Draft for every request with the side whose expected acceptance is higher."""
        tokens = step.tokens_on_host()
        found = self.suffix.look_up(step, tokens)
        accounts = [
            self._account(step.batch.req_ids[i], new) if new else None
            for i, new in enumerate(tokens)
        ]
        self.by_suffix = self._choose(step, accounts, found)
        asked = [account for i, account in enumerate(accounts) if i not in self.by_suffix]
        self.keeps_cache_only = self._may_be_left_out() and not any(asked)
        drafts = super().draft(step)  # type: ignore[misc]
        if step.k == 0:
            return drafts
        rows = drafts.tolist()
        for i, (account, one) in enumerate(zip(accounts, found, strict=True)):
            if account is not None:
                chain = rows[i][: self._depth_of(step.k)]
                account.last = (
                    None if one is None else by_trees(one),
                    by_model(chain) if chain else None,
                )
                account.by_suffix = i in self.by_suffix
        return [
            list(self.by_suffix[i].tokens) if i in self.by_suffix else row
            for i, row in enumerate(rows)
        ]

    def take_parents(self) -> list[list[int]] | None:
        """Return how the last drafts of each request hang together; the trees' are chains."""
        parents = super().take_parents()  # type: ignore[misc]
        if parents is not None:
            for i in self.by_suffix:
                parents[i] = []
        return parents

    def learn_tree(self, parents: Sequence[Sequence[int]], rows: Sequence[Sequence[int]]) -> None:
        """Note what was accepted of the model's drafts; parameters as in the base class."""
        ids, followed = self.suffix.runner.input_batch.req_ids, self.suffix.followed
        own = [
            () if name in followed and getattr(followed[name].notes, "by_suffix", False) else one
            for name, one in zip(ids, parents, strict=False)
        ]
        super().learn_tree(own, rows)  # type: ignore[misc]

    def forget_answers(self) -> None:
        """Forget all answers, but not how often drafts were accepted."""
        self.suffix.forget_answers()

    def forget(self) -> None:
        """Forget all that was learned, as after an engine start."""
        super().forget()  # type: ignore[misc]
        self.forget_answers()
        self.forecasts = Estimators()

    def _account(self, req_id: str, written: list[int]) -> RequestState:
        """Return the account of a request, updated with this step's tokens."""
        followed = self.suffix.followed[req_id]
        if followed.notes is None:
            followed.notes = RequestState(self.forecasts)
        account: RequestState = followed.notes
        before = followed.num_tokens - len(written)
        # Drafts of a greedy request are always greedy.
        is_sampled = samples(followed.state.sampling_params)
        draws = is_sampled and self._enable_probabilistic_draft_probs
        account.learn(before, written, draws=draws)
        account.last, account.num_tokens = (None, None), followed.num_tokens
        return account

    def _choose(
        self, step: DraftStep, accounts: list[RequestState | None], found: list[Found | None]
    ) -> dict[int, Drafts]:
        """Return the trees' drafts by index of the requests that take them."""
        mode = self.vllm_config.compilation_config.cudagraph_mode
        # A full graph needs K drafts from every request; with fewer the step runs without it.
        least = step.k if mode.has_full_cudagraphs() else 1
        chosen = {}
        for i, (account, one) in enumerate(zip(accounts, found, strict=True)):
            if account is None or one is None or len(one.token_ids) < least:
                continue
            drafts = by_trees(one)
            if account.prefers_suffix(drafts, self._depth_of(step.k)):
                chosen[i] = drafts
        return chosen

    def _depth_of(self, k: int) -> int:
        """Return how many of the model's drafts are the chain that a tree begins with."""
        return k if self._shape is None else min(k, self._longest_chain)

    def _may_be_left_out(self) -> bool:
        """Tell whether the model's draft steps 2 to K can be skipped in a single engine step."""
        if self.has_all_steps_in_a_graph() or has_lockstep_replicas(self.vllm_config):  # type: ignore[attr-defined]
            return False
        return self.uses_own_loop

    def take_last_draft_probs(self) -> torch.Tensor | None:
        """Return the distributions of the last drafts; those of the trees' drafts are one-hot."""
        probs = super().take_last_draft_probs()  # type: ignore[misc]
        if probs is not None and self.by_suffix:
            cells = [
                (row, place, token)
                for row, drafts in self.by_suffix.items()
                for place, token in enumerate(drafts.tokens)
            ]
            rows, places, tokens = send(torch.tensor(cells).T, probs.device)
            probs[rows] = 0.0
            probs[rows, places, tokens] = 1.0
        return probs
