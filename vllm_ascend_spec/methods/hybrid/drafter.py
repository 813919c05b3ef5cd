"""The drafter of method ``hybrid``: suffix trees before a drafter with a model.

The model's first pass runs over all tokens of every step, so its KV cache is right whoever drafts.
The later draft steps run too unless every request of the batch takes the trees' drafts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.methods.hybrid.choice import Account, Forecasts, by_model, by_trees
from vllm_ascend_spec.methods.hybrid.estimate import Drafts
from vllm_ascend_spec.methods.suffix.drafter import Found, SuffixDrafter, repeats, samples

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

    from vllm_ascend_spec.methods.drafter import Engine
    from vllm_ascend_spec.methods.step import DraftStep


class HybridMixin:
    """Mix into a drafter with a draft loop of ours, before it in the bases.

    Attributes:
        suffix: drafts from suffix trees.
        by_suffix: the requests of this step that take those drafts, by index, and the drafts.
    """

    suffix: SuffixDrafter
    forecasts: Forecasts
    by_suffix: dict[int, Drafts]
    keeps_cache_only: bool
    vllm_config: Any
    uses_own_loop: bool
    _enable_probabilistic_draft_probs: bool

    @classmethod
    def create(cls, engine: Engine) -> Self:
        """Build the drafter of an engine.

        Raises:
            ConfigError: an option asks for what the model's method cannot do here.
        """
        drafter = super().create(engine)  # type: ignore[misc]
        drafter.suffix = SuffixDrafter.create(engine)
        drafter.forecasts = Forecasts()
        drafter.by_suffix = {}
        return drafter

    def draft(self, step: DraftStep) -> list[list[int]] | torch.Tensor:
        """Draft for every request by whichever side promises more."""
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
        if step.num_drafts == 0:
            return drafts
        rows = drafts.tolist()
        for i, (account, one) in enumerate(zip(accounts, found, strict=True)):
            if account is not None:
                account.last = (
                    None if one is None else by_trees(one),
                    by_model(rows[i]) if rows[i] else None,
                )
                account.by_suffix = i in self.by_suffix
        return [
            list(self.by_suffix[i].tokens) if i in self.by_suffix else row
            for i, row in enumerate(rows)
        ]

    def forget_answers(self) -> None:
        """Begin anew, as an engine does: no answer is remembered."""
        self.suffix.forget_answers()

    def _account(self, req_id: str, written: list[int]) -> Account:
        """Return the account of a request, brought up to this step."""
        followed = self.suffix.followed[req_id]
        if followed.notes is None:
            is_alone = repeats(followed.state.sampling_params)
            followed.notes = Account(Forecasts() if is_alone else self.forecasts, is_alone)
        account: Account = followed.notes
        before = followed.num_tokens - len(written)
        # A greedy request's drafts are certain in any case.
        is_sampled = samples(followed.state.sampling_params)
        draws = is_sampled and self._enable_probabilistic_draft_probs
        account.learn(before, written, draws=draws)
        account.last, account.num_tokens = (None, None), followed.num_tokens
        return account

    def _choose(
        self, step: DraftStep, accounts: list[Account | None], found: list[Found | None]
    ) -> dict[int, Drafts]:
        """Return the requests, by index, that take the trees' drafts, with these."""
        mode = self.vllm_config.compilation_config.cudagraph_mode
        # A full graph has K drafts for every request: fewer for one would do without it.
        least = step.num_drafts if mode.has_full_cudagraphs() else 1
        chosen = {}
        for i, (account, one) in enumerate(zip(accounts, found, strict=True)):
            if account is None or one is None or len(one.token_ids) < least:
                continue
            drafts = by_trees(one)
            if account.prefers_suffix(drafts, step.num_drafts):
                chosen[i] = drafts
        return chosen

    def _may_be_left_out(self) -> bool:
        """Tell whether the model's later steps can be left out of one step of the engine."""
        return self.uses_own_loop and not self.has_all_steps_in_a_graph()  # type: ignore[attr-defined]

    def take_last_draft_probs(self) -> torch.Tensor | None:
        """Return the distributions of the last drafts; those of the trees are certain."""
        probs = super().take_last_draft_probs()  # type: ignore[misc]
        if probs is not None:
            for row, drafts in self.by_suffix.items():
                probs[row] = 0.0
                for place, token in enumerate(drafts.tokens):
                    probs[row, place, token] = 1.0
        return probs
