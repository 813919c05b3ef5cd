"""Which drafts a request gets: those of the suffix trees or those of the model.

The choice is made before the model drafts, by what is written and by what became of earlier
drafts. So it never depends on how the drafts of this step are drawn, and the output stays the
target's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from vllm_ascend_spec.methods.hybrid.estimate import Drafts, Forecast, Tally

# Of a model's drafts before anything is known of it.
MODEL_CHANCE = 0.7


@dataclass
class Forecasts:
    """What the drafts of either side are worth."""

    suffix: Forecast = field(default_factory=Forecast)
    model: Forecast = field(default_factory=Forecast)


@dataclass
class Account:
    """What is known about the drafts of one request.

    Attributes:
        forecasts: of all requests, or of this one alone where it has to repeat.
        is_alone: whether that is so.
        suffix: tally of the suffix trees' drafts.
        model: tally of the model's.
        last: the drafts of the last step, of either side; None where there were none.
        by_suffix: whether those of the trees were verified.
        num_tokens: how long the text was that they go on from.
    """

    forecasts: Forecasts
    is_alone: bool
    suffix: Tally = field(default_factory=Tally)
    model: Tally = field(default_factory=Tally)
    last: tuple[Drafts | None, Drafts | None] = (None, None)
    by_suffix: bool = False
    num_tokens: int = -1

    def learn(self, num_tokens: int, written: Sequence[int], *, draws: bool) -> None:
        """Compare the last drafts with what was written since.

        Drafts that were not verified are compared, too: what a certain draft would have been is
        what the target wrote or is not. Of a draft that would have been drawn that says too little.

        Args:
            num_tokens: how long the text was before ``written``.
            written: the tokens of this step.
            draws: whether the model's drafts are drawn.
        """
        if num_tokens != self.num_tokens:
            return
        suffix, model = self.last
        if suffix is not None:
            outcomes = suffix.outcomes(written)
            self.forecasts.suffix.learn(suffix, outcomes, self.suffix)
        # Whether the model drafted beside the trees depends on other requests.
        is_told = not self.by_suffix or not (draws or self.is_alone)
        if model is not None and is_told:
            self.forecasts.model.learn(model, model.outcomes(written), self.model)

    def prefers_suffix(self, suffix: Drafts, num_drafts: int) -> bool:
        """Tell whether the trees' drafts promise more than the model's ``num_drafts``."""
        promised = self.forecasts.suffix.expect(suffix, self.suffix)
        return promised > self.forecasts.model.expect(by_model([0] * num_drafts), self.model)


def by_model(tokens: Sequence[int]) -> Drafts:
    """Return a model's drafts as what they are judged by: their positions."""
    return Drafts(tokens, range(len(tokens)), [MODEL_CHANCE] * len(tokens))


def by_trees(found: Any) -> Drafts:
    """Return the trees' drafts as what they are judged by: frequencies, and the match's length.

    Args:
        found: arctic-inference's ``SuffixDecodingDraft``; its ``probs`` are of a draft together
            with those before it, and add up to its ``score``.
    """
    probs = [1.0, *found.probs]
    chances = [later / before for before, later in pairwise(probs)]
    # Matches of 1, 2-3, 4-7, 8-15, … tokens. A first draft is less sure: what it is judged by has
    # the end of the text in it, where nothing has followed yet.
    length = found.match_len.bit_length()
    kinds = [(length, place == 0) for place in range(len(chances))]
    return Drafts(list(found.token_ids), kinds, chances)
