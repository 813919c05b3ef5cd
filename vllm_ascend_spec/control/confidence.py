"""How many of a request's drafts are worth a row, by the draft model's confidence in each of them.

Two estimates are combined: the confidence, and how often the request's drafts in the same place
were accepted. Both know something that the other does not. Multiplied odds are Bayes' rule for two
observations that are independent, given whether the draft is accepted.

It is lossless, because whether a draft is verified never depends on the draft itself. Confidence i
is computed from the target's states and drafts 1 to i-1 alone, and a request's drafts end before
the first one that does not pay. So the decision about draft i is made before draft i is drawn, as
if the drafter had stopped there, and both acceptance rules are exact for any length that is decided
in this way. Everything else in the decision comes from earlier steps, or it would make the length
depend on later confidences, which do depend on draft i. Drafts after the end of an earlier step
took no part in its tokens.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from statistics import fmean as mean

from vllm_ascend_spec.control.per_request import GAIN, PerRequestAcceptance

# Observations that count in calibration and losses; older ones have faded.
WINDOW = 256
# Variance of confidences that has to be observed for half of the offset to be believed.
PRIOR_VARIANCE = 2.0
# Newest drafts in each place that are kept, and how many are needed.
SAMPLES, MIN_SAMPLES = 64, 8
# Observed drafts before confidences are used.
MIN_OBSERVED = 16.0
# Probabilities are kept this far from 0 and 1.
EDGE = 1e-3


def odds(probability: float) -> float:
    """Return the odds of a probability, which is kept away from 0 and 1."""
    # Without min() and max(), as it is called for each draft of a batch.
    if probability < EDGE:
        return EDGE / (1.0 - EDGE)
    return probability / (1.0 - probability) if probability <= 1.0 - EDGE else (1.0 - EDGE) / EDGE


def combine(
    confidences: Sequence[float], own: Sequence[float], factors: Sequence[float]
) -> list[float]:
    """Return the probability of each draft to be accepted, given that all before it are.

    Args:
        confidences: by place, by the draft model.
        own: the request's acceptance rates by place.
        factors: by place: the factor by which the odds of confidences are too low, divided by the
            odds of the acceptance rate of all requests, which both estimates include.
    """
    found = []
    for confidence, rate, factor in zip(confidences, own, factors, strict=False):
        both = odds(confidence) * odds(rate) * factor
        found.append(both / (1.0 + both))
    return found


def worth(rates: Sequence[float], price: float) -> int:
    """Return how many drafts pay for their rows; rate i must not depend on draft i or later ones.

    Args:
        rates: probability of each draft to be accepted, given that all before it are.
        price: tokens that the batch produces in the time of a row.
    """
    chance = 1.0
    for place, rate in enumerate(rates):
        chance *= rate
        if chance < price:
            return place
    return len(rates)


@dataclass(frozen=True)
class Estimate:
    """What is expected of a request's drafts.

    Attributes:
        confidences: by place, by the draft model.
        by_counts: by place, from counts alone.
        rates: by place, from both.
        limit: how many of the drafts are verified.
    """

    confidences: Sequence[float]
    by_counts: Sequence[float]
    rates: Sequence[float]
    limit: int


class ConfidenceLimits:
    """Limits of drafts by confidence, for one class of batches.

    Args:
        per_request: counts of the class.

    Attributes:
        price: tokens that the batch produces in the time of a row; None while it is not known.
    """

    def __init__(self, per_request: PerRequestAcceptance) -> None:
        self._per_request = per_request
        self.price: float | None = None
        # By place, chances of the newest drafts to be accepted with all before them.
        self._chances: list[deque[float]] = [
            deque(maxlen=SAMPLES) for _ in range(per_request.overall.longest)
        ]
        # Sums for the calibration: accepted drafts minus confidences, and their variances.
        self._missing = self._variance = 0.0
        # Log losses of both estimates, and of that from counts alone.
        self._loss = self._loss_by_counts = self._observed = 0.0

    @property
    def offset(self) -> float:
        """Log odds by which confidences are too low: one step of Newton's method."""
        return self._missing / (self._variance + PRIOR_VARIANCE)

    @property
    def is_better(self) -> bool:
        """Whether acceptance is predicted better with confidences than without."""
        return self._observed >= MIN_OBSERVED and self._loss < self._loss_by_counts

    def estimate(
        self, confidences: Mapping[str, Sequence[float]], *, may_limit: bool
    ) -> dict[str, Estimate]:
        """Return what is expected of the new drafts of each request.

        Args:
            confidences: by request id and place.
            may_limit: whether drafts that are not worth a row may be left out.
        """
        drafts = max(map(len, confidences.values()), default=0)
        # For all requests, before any of their confidences is read.
        price = self.price if may_limit and self.pays(drafts) else None
        overall, correction = self._per_request.overall.rates(), math.exp(self.offset)
        factors = [correction / odds(rate) for rate in overall]
        return {
            req_id: self._estimate(req_id, found, overall, factors, price)
            for req_id, found in confidences.items()
        }

    def _estimate(
        self,
        req_id: str,
        confidences: Sequence[float],
        overall: list[float],
        factors: list[float],
        price: float | None,
    ) -> Estimate:
        own = self._per_request.rates(req_id, overall)
        rates = combine(confidences, own, factors)
        for found, chance in zip(self._chances, accumulate(rates, mul), strict=False):
            found.append(chance)
        limit = len(rates) if price is None else worth(rates, price)
        return Estimate(confidences, own, rates, limit)

    def note(self, expected: Estimate, drafts: int, accepted: int) -> None:
        """Record how many of a request's drafts were accepted, and what was expected of them."""
        keep = 1.0 - 1.0 / WINDOW
        for place in range(min(accepted + 1, drafts, len(expected.rates))):
            is_accepted, confidence = place < accepted, expected.confidences[place]
            self._missing = keep * self._missing + float(is_accepted) - confidence
            self._variance = keep * self._variance + confidence * (1.0 - confidence)
            both, alone = expected.rates[place], expected.by_counts[place]
            self._loss = keep * self._loss + log_loss(both, is_true=is_accepted)
            self._loss_by_counts = keep * self._loss_by_counts + log_loss(
                alone, is_true=is_accepted
            )
            self._observed = keep * self._observed + 1.0

    def pays(self, drafts: int) -> bool:
        """Tell whether limits by confidence pay if a step makes this many drafts per request."""
        if self.price is None or not self.is_better:
            return False
        if any(len(chances) < MIN_SAMPLES for chances in self._chances[:drafts]):
            return False
        price = self.price
        saved = sum(mean(max(0.0, price - c) for c in found) for found in self._chances[:drafts])
        # A batch of one has requests of one number of rows only.
        least = GAIN if self._per_request.num_running > 1 else 0.0
        return saved > least * self._per_request.tokens(drafts)

    def tokens(self, drafts: int) -> float:
        """Return how many tokens a step is expected to yield for a request of the batch."""
        # Where confidences limit drafts, a request's own counts are those of promising drafts.
        of_all = self._per_request.overall if self.is_better else self._per_request
        tokens, price = of_all.tokens(drafts), self.price
        if price is None or not self.pays(drafts):
            return tokens
        # Not the mean of the chances that are kept: it is too old where fewer drafts were made.
        lost = sum(
            mean(chance if chance < price else 0.0 for chance in found)
            for found in self._chances[:drafts]
        )
        return max(1.0, tokens - lost)

    def rows_left_out(self, drafts: int) -> float:
        """Return how many rows of a request are expected to be left out."""
        price = self.price
        if price is None or not self.pays(drafts):
            return 0.0
        return sum(mean(float(c < price) for c in found) for found in self._chances[:drafts])


def log_loss(probability: float, *, is_true: bool) -> float:
    """Return minus the logarithm of the probability that was given to what came true."""
    return math.log1p(1.0 / odds(probability) if is_true else odds(probability))
