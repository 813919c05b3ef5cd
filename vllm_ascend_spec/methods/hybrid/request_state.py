"""Choose whether a request gets the drafts of the suffix trees or those of the model.

The choice is made before the model drafts, from the text so far and the outcomes of earlier drafts.
So it never depends on how the drafts of this step are sampled, and the output distribution stays
the target's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from vllm_ascend_spec.methods.hybrid.estimate import Drafts, Forecast, Outcomes

# Assumed acceptance of a model's drafts before anything is known about it.
MODEL_CHANCE = 0.7


@dataclass
class Estimators:
    """Acceptance forecasts of both sides."""

    suffix: Forecast = field(default_factory=Forecast)
    model: Forecast = field(default_factory=Forecast)


@dataclass
class RequestState:
    """What is known about the drafts of one request.

    Attributes:
        forecasts: forecasts of all requests.
        suffix: tally of the suffix trees' drafts.
        model: tally of the model's drafts.
        last: both sides' drafts of the last step, suffix trees first; None for a side without.
        by_suffix: whether the trees' drafts were verified.
        num_tokens: length of the text that the last drafts continue.
    """

    forecasts: Estimators
    suffix: Outcomes = field(default_factory=Outcomes)
    model: Outcomes = field(default_factory=Outcomes)
    last: tuple[Drafts | None, Drafts | None] = (None, None)
    by_suffix: bool = False
    num_tokens: int = -1

    def learn(self, num_tokens: int, written: Sequence[int], *, draws: bool) -> None:
        """Compare the last drafts with the tokens written since.

        Drafts that were not verified are compared too: a greedy draft either equals the target's
        token or does not. For a sampled draft this comparison says too little.

        Args:
            num_tokens: length of the text before ``written``.
            written: the tokens of this step.
            draws: whether the model's drafts are sampled.
        """
        if num_tokens != self.num_tokens:
            return
        suffix, model = self.last
        if suffix is not None:
            outcomes = suffix.outcomes(written)
            self.forecasts.suffix.learn(suffix, outcomes, self.suffix)
        if model is not None and not (self.by_suffix and draws):
            self.forecasts.model.learn(model, model.outcomes(written), self.model)

    def prefers_suffix(self, suffix: Drafts, k: int) -> bool:
        """Tell whether ``suffix`` promises more accepted tokens than the model's ``k``."""
        promised = self.forecasts.suffix.expect(suffix, self.suffix)
        return promised > self.forecasts.model.expect(by_model([0] * k), self.model)


def by_model(tokens: Sequence[int]) -> Drafts:
    """Wrap a model's drafts for the forecast; their kinds are their positions."""
    return Drafts(tokens, range(len(tokens)), [MODEL_CHANCE] * len(tokens))


def by_trees(found: Any) -> Drafts:
    """Wrap the trees' drafts for the forecast, by token frequency and match length.

    Args:
        found: arctic-inference's ``SuffixDecodingDraft``; its ``probs`` are cumulative along the
            draft, and add up to its ``score``.
    """
    probs = [1.0, *found.probs]
    chances = [later / before for before, later in pairwise(probs)]
    # Matches of 1, 2-3, 4-7, 8-15, … tokens. A first draft is less certain: its frequency counts
    # the end of the text too, which nothing has followed yet.
    length = found.match_len.bit_length()
    kinds = [(length, place == 0) for place in range(len(chances))]
    return Drafts(list(found.token_ids), kinds, chances)
