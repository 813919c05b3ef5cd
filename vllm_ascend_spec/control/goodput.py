"""Choose K: the most expected tokens per second, by what was accepted and how long steps took.

Tokens per second is what SmartSpec calls goodput (2406.14066). The choice is a function of counts
and times alone; the text, and the drafts' random draw among it, has no say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vllm_ascend_spec.control.acceptance import Acceptance
from vllm_ascend_spec.control.costs import StepCosts

# A choice is kept for so many steps, and left for more drafts only if they promise so much more.
HOLD = 8
MARGIN = 0.03
# By how much an estimate may be off from what was measured at other lengths.
GUESS = 0.1
# Steps of an unknown length until it is known: two to change over (steps.py), and those that are
# measured.
LOOK = 4
# First drafts until acceptance is more than a guess, and steps after which it has to do.
SEEN, BEGINNING = 5.0, 16
# Steps of about as many requests between two looks at lengths that were not chosen; they double
# while the looks do not pay.
PROBE_FIRST, PROBE_LAST = 64, 2048
# Steps of such a look: one more, as they change an average of measurements.
PROBE_LOOK = 5
# Of the time, what looks that do not pay may cost at most.
SHARE = 0.01
# Fewer drafts than the best are looked at only where they promise so much of it, once their steps
# were measured so often: how often they are accepted is known from the best, and what their steps
# take hardly changes. The first ones may have compiled something.
NEAR, OFTEN = 0.8, 8
# Measurements after which they are looked at all the same: the machine may have been busy then.
STALE = 512
# Why a length was chosen.
UNKNOWN, PROBE, PAYS = "unknown", "probe", "pays"


@dataclass(frozen=True)
class Choice:
    """A length and why.

    Attributes:
        drafts: K.
        reason: :data:`UNKNOWN` while it is measured, :data:`PROBE` to see whether it pays again, or
            :data:`PAYS`.
    """

    drafts: int
    reason: str


@dataclass
class Looks:
    """When lengths that were not chosen are looked at again, in batches of about one size.

    Attributes:
        patience: steps between two looks.
        left: steps until the next one.
    """

    patience: int = PROBE_FIRST
    left: int = PROBE_FIRST

    def wait(self, steps: int) -> None:
        """Wait so many steps for the next look, between the shortest and the longest wait."""
        self.patience = self.left = min(max(steps, PROBE_FIRST), PROBE_LAST)


class LengthChooser:
    """Chooses K for each step of an engine.

    Args:
        lengths: K to choose from, 0 among them where drafting may pause.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        if not lengths or min(lengths) < 0 or max(lengths) < 1:
            raise ValueError(f"no lengths to choose from: {list(lengths)}")
        self.lengths = sorted(set(lengths))
        self.acceptance = Acceptance(self.lengths[-1])
        # Of a step for a request, by the number of its drafts; the batch at hand may differ.
        self.expected_tokens: Callable[[int], float] = self.acceptance.tokens
        self.costs = StepCosts()
        self.choice = Choice(self.lengths[-1], UNKNOWN)
        self._before_probe = self.choice.drafts
        self._left = self._requests = 0
        # By powers of two: what was found out about other batches is no reason to wait.
        self._looks: defaultdict[int, Looks] = defaultdict(Looks)
        # When each length was last chosen for its own sake, to look at the oldest first.
        self._last_seen = dict.fromkeys(self.lengths, 0)
        self._step = 0

    def choose(self, requests: int) -> Choice:
        """Return the length for a step.

        Args:
            requests: of the batch.
        """
        self._step += 1
        self._looks[requests.bit_length()].left -= 1
        self._last_seen[self.choice.drafts] = self._step
        if self._left > 0 and self._is_alike(requests):
            self._left -= 1
            return self.choice
        self._requests = requests
        self.choice, steps = self._choose_anew(requests)
        self._left = steps - 1
        return self.choice

    def _choose_anew(self, requests: int) -> tuple[Choice, int]:
        """Return a choice, and for how many steps it is kept."""
        if self.acceptance.num_observed < SEEN and self._step <= BEGINNING:
            return Choice(self.lengths[-1], UNKNOWN), LOOK
        unknown = [k for k in self.lengths if self.costs.seconds(requests, k) is None]
        if unknown:
            # The longest first, so that an engine starts as a fixed K would, and then the shortest:
            # what is between can be told from the two.
            is_first = len(unknown) == len(self.lengths)
            return Choice(unknown[-1 if is_first else 0], UNKNOWN), LOOK
        best = self._best(requests)
        promising = self._promising(requests, best)
        if promising is not None:
            return Choice(promising, UNKNOWN), LOOK
        looks = self._looks[requests.bit_length()]
        if looks.left <= 0:
            return self._probe(requests, best, looks)
        if self.choice.reason == PROBE:
            # What was seen may have changed the best.
            is_changed = best != self._before_probe
            longer = max(looks.patience * 2, self._worth_of_look(requests, best))
            looks.wait(PROBE_FIRST if is_changed else longer)
        return Choice(best, PAYS), HOLD

    def _is_alike(self, requests: int) -> bool:
        """Tell whether a batch is like the one that was chosen for, or less than twice another."""
        fewer, more = sorted((requests, self._requests))
        return more < 2 * fewer

    def _best(self, requests: int) -> int:
        """Return the length of the highest goodput; the one before if more gain hardly anything."""
        goodput = {k: self.goodput(requests, k) for k in self.lengths}
        best = max(self.lengths, key=lambda k: goodput[k])
        # What was only looked at has to promise as much more as any other.
        settled = {PAYS: self.choice.drafts, PROBE: self._before_probe}
        now = settled.get(self.choice.reason, best)
        # Fewer drafts need not promise more: where none are as good, nothing is lost to chance.
        margin = MARGIN if best > now else 0.0
        return best if goodput[best] > goodput[now] * (1 + margin) else now

    def _promising(self, requests: int, best: int) -> int | None:
        """Return a length that may be the best, and of which only others were measured."""
        least = self.goodput(requests, best) * (1 - GUESS)
        estimated = (k for k in self.lengths if not self.costs.is_measured(k))
        return next((k for k in estimated if self.goodput(requests, k) > least), None)

    def _worth_of_look(self, requests: int, best: int) -> int:
        """Return over how many steps the look that has just ended costs no more than its share."""
        look, steps = self.choice.drafts, self.costs.seconds(requests, best)
        seconds = self.costs.seconds(requests, look)
        if not steps or not seconds:
            return 0
        lost = 1.0 - self.goodput(requests, look) / self.goodput(requests, best)
        return int(PROBE_LOOK * seconds / steps * max(0.0, lost) / SHARE)

    def _may_be_better(self, requests: int, drafts: int, best: int) -> bool:
        """Tell whether fewer drafts than the best are worth a look."""
        seen, since = self.costs.seen_near(requests, drafts)
        if seen < OFTEN or since > STALE:
            return True
        return self.goodput(requests, drafts) > NEAR * self.goodput(requests, best)

    def goodput(self, requests: int, drafts: int) -> float:
        """Return the expected tokens per second of a batch; 0 where its time is not known."""
        seconds = self.costs.seconds(requests, drafts)
        return requests * self.expected_tokens(drafts) / seconds if seconds else 0.0

    def _probe(self, requests: int, best: int, looks: Looks) -> tuple[Choice, int]:
        """Look at a length beside the best: the next one up, or the one not seen for longest."""
        place = self.lengths.index(best)
        fewer, more = self.lengths[max(0, place - 1) : place], self.lengths[place + 1 : place + 2]
        beside = [k for k in fewer if self._may_be_better(requests, k, best)] + more
        self._before_probe = best
        if not beside:
            looks.wait(looks.patience)
            return Choice(best, PAYS), HOLD
        oldest = min(beside, key=lambda k: (self._last_seen[k], -k))
        looks.wait(looks.patience)
        return Choice(oldest, PROBE), PROBE_LOOK
