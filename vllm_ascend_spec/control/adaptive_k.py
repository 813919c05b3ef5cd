"""Choose the K with the most expected tokens per second, from acceptance and step times.

SmartSpec calls tokens per second goodput (2406.14066). The choice is a function of counts, times
and, if there are any, confidences of earlier steps; it depends on none of the drafts that it is
made for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from vllm_ascend_spec.control.acceptance import RecentAcceptance
from vllm_ascend_spec.control.cost_model import CostModel

# Steps for which a choice is kept, and the share of goodput that more drafts have to gain.
HOLD_STEPS = 8
MARGIN = 0.03
# Share by which an estimate from measurements of other K may be wrong.
ESTIMATE_ERROR = 0.1
# Steps to try an unknown K: WARMUP_STEPS of step_timer.py, and those that are measured.
EXPLORE_STEPS = 4
# Observed first drafts from which acceptance is more than a guess, and steps after which it is used
# in any case.
MIN_OBSERVED, FIRST_STEPS = 5.0, 16
# Steps with about equally many requests between two probes of K that were not chosen: the first
# interval and the longest. The interval doubles while probes do not pay.
MIN_PROBE_INTERVAL, MAX_PROBE_INTERVAL = 64, 2048
# Steps of such a probe: one more than EXPLORE_STEPS, as they have to move an average.
PROBE_STEPS = 5
# Share of the time that probes which do not pay may cost at most.
PROBE_SHARE = 0.01
# A K below the best that was measured WELL_MEASURED times is probed only if it promises the share
# MIN_PROMISE of the best goodput: its acceptance is known from the best K, and its step time hardly
# changes. The first measurements may include compilation.
MIN_PROMISE, WELL_MEASURED = 0.8, 8
# Measurements after which it is probed all the same: the machine may have been busy at the time.
STALE_AFTER = 512
# Times that a K is chosen because too little is known of what it yields.
MOST_TRIES = 32
# Why a K was chosen.
UNKNOWN, PROBE, PAYS = "unknown", "probe", "pays"


@dataclass(frozen=True)
class KChoice:
    """A choice of K and its reason.

    Attributes:
        k: number of drafts for each request.
        reason: :data:`UNKNOWN` while this K is being measured, :data:`PROBE` to see whether it pays
            again, or :data:`PAYS`.
    """

    k: int
    reason: str


@dataclass
class ProbeTimer:
    """When to probe K that were not chosen, in batches of about one size.

    Attributes:
        patience: steps between two probes.
        left: steps until the next probe.
    """

    patience: int = MIN_PROBE_INTERVAL
    left: int = MIN_PROBE_INTERVAL

    def wait(self, steps: int) -> None:
        """Set the steps until the next probe, within the shortest and the longest interval."""
        self.patience = self.left = min(max(steps, MIN_PROBE_INTERVAL), MAX_PROBE_INTERVAL)


class AdaptiveK:
    """Chooses K for each step of an engine.

    Args:
        k_values: values of K to choose from, including 0 if drafting may pause.
        costs: what steps cost; None to begin anew.
    """

    def __init__(self, k_values: Sequence[int], costs: CostModel | None = None) -> None:
        if not k_values or min(k_values) < 0 or max(k_values) < 1:
            raise ValueError(f"no K to choose from: {list(k_values)}")
        self.k_values = sorted(set(k_values))
        self.acceptance = RecentAcceptance(self.k_values[-1])
        # Tokens per request and step by number of drafts; ``BatchClass`` may set its own.
        self.expected_tokens: Callable[[int], float] = self.acceptance.tokens
        # Whether these are uncertain; likewise.
        self.is_uncertain: Callable[[int], bool] = never
        # The K that are trees: they may be better than a chain that its neighbours are not.
        self.trees: Collection[int] = ()
        # Rows per request that are left out of a step, by number of drafts; likewise.
        self.rows_left_out: Callable[[int], float] = no_rows
        self.costs = costs or CostModel()
        self.choice = KChoice(self.k_values[-1], UNKNOWN)
        self._before_probe = self.choice.k
        self._left = self._requests = 0
        # By power of two of the batch size: a probe in other batches is no reason to wait.
        self._looks: defaultdict[int, ProbeTimer] = defaultdict(ProbeTimer)
        # Step in which each K was last used, to probe the oldest first.
        self._last_seen = dict.fromkeys(self.k_values, 0)
        self._step = 0
        self._tries: Counter[int] = Counter()

    def choose(self, requests: int) -> KChoice:
        """Return the choice of K for a step.

        Args:
            requests: number of requests in the batch.
        """
        self._step += 1
        self._looks[requests.bit_length()].left -= 1
        self._last_seen[self.choice.k] = self._step
        if self._left > 0 and self._is_alike(requests):
            self._left -= 1
            return self.choice
        self._requests = requests
        self.choice, steps = self._choose_anew(requests)
        self._left = steps - 1
        return self.choice

    def _choose_anew(self, requests: int) -> tuple[KChoice, int]:
        """Return a new choice, and for how many steps it is kept."""
        if self.acceptance.num_observed < MIN_OBSERVED and self._step <= FIRST_STEPS:
            return KChoice(self.k_values[-1], UNKNOWN), EXPLORE_STEPS
        unknown = [k for k in self.k_values if self.costs.seconds(requests, k) is None]
        if unknown:
            # The largest first, so that an engine starts as with a fixed K, and then the smallest:
            # those between can be estimated from these two.
            is_first = len(unknown) == len(self.k_values)
            return KChoice(unknown[-1 if is_first else 0], UNKNOWN), EXPLORE_STEPS
        best = self._best(requests)
        promising = self._candidate(requests, best)
        if promising is not None:
            self._tries[promising] += 1
            return KChoice(promising, UNKNOWN), EXPLORE_STEPS
        looks = self._looks[requests.bit_length()]
        if looks.left <= 0:
            return self._probe(requests, best, looks)
        if self.choice.reason == PROBE:
            # The probe may have changed the best K.
            is_changed = best != self._before_probe
            longer = max(looks.patience * 2, self._interval_worth(requests, best))
            looks.wait(MIN_PROBE_INTERVAL if is_changed else longer)
        return KChoice(best, PAYS), HOLD_STEPS

    def _is_alike(self, requests: int) -> bool:
        """Tell whether a batch is within a factor of two of the one that K was chosen for."""
        fewer, more = sorted((requests, self._requests))
        return more < 2 * fewer

    def _best(self, requests: int) -> int:
        """Return the K of the highest goodput, or the current one if a larger gains too little."""
        goodput = {k: self.goodput(requests, k) for k in self.k_values}
        best = max(self.k_values, key=lambda k: goodput[k])
        # A K that was only probed has to gain the margin like any other.
        settled = {PAYS: self.choice.k, PROBE: self._before_probe}
        now = settled.get(self.choice.reason, best)
        # Fewer drafts need no margin: if K=0 is as good, not drafting risks nothing.
        margin = MARGIN if best > now else 0.0
        return best if goodput[best] > goodput[now] * (1 + margin) else now

    def _candidate(self, requests: int, best: int) -> int | None:
        """Return a K that may be the best and of which too little was measured."""
        least = self.goodput(requests, best) * (1 - ESTIMATE_ERROR)
        little = (k for k in self.k_values if self._is_little_known(k))
        return next((k for k in little if self.goodput(requests, k) > least), None)

    def _is_little_known(self, k: int) -> bool:
        if not self.costs.is_measured(k):
            return True
        # Requests may have limits, so that what it yields is never seen.
        return self.is_uncertain(k) and self._tries[k] < MOST_TRIES

    def _interval_worth(self, requests: int, best: int) -> int:
        """Return over how many steps the probe that just ended costs no more than its share."""
        look, steps = self.choice.k, self.costs.seconds(requests, best)
        seconds = self.costs.seconds(requests, look)
        if not steps or not seconds:
            return 0
        lost = 1.0 - self.goodput(requests, look) / self.goodput(requests, best)
        return int(PROBE_STEPS * seconds / steps * max(0.0, lost) / PROBE_SHARE)

    def _may_be_better(self, requests: int, k: int, best: int) -> bool:
        """Tell whether a K below the best is worth a probe."""
        seen, since = self.costs.seen_near(requests, k)
        if seen < WELL_MEASURED or since > STALE_AFTER:
            return True
        return self._promises(requests, k, best)

    def _promises(self, requests: int, k: int, best: int) -> bool:
        return self.goodput(requests, k) > MIN_PROMISE * self.goodput(requests, best)

    def goodput(self, requests: int, k: int) -> float:
        """Return the expected tokens per second of a batch; 0 where its time is not known."""
        seconds = self.costs.seconds(requests, k)
        if not seconds:
            return 0.0
        if left_out := self.rows_left_out(k):
            row = self.costs.row_seconds(requests) or 0.0
            seconds = max(0.5 * seconds, seconds - requests * left_out * row)
        return requests * self.expected_tokens(k) / seconds

    def _probe(self, requests: int, best: int, looks: ProbeTimer) -> tuple[KChoice, int]:
        """Probe the next smaller or the next larger K than the best, or a tree that promises much.

        Of these it is the one that was used longest ago.
        """
        place = self.k_values.index(best)
        fewer, more = self.k_values[max(0, place - 1) : place], self.k_values[place + 1 : place + 2]
        beside = [k for k in fewer if self._may_be_better(requests, k, best)] + more
        others = set(self.trees) - {best, *fewer, *more}
        beside += [k for k in sorted(others) if self._promises(requests, k, best)]
        self._before_probe = best
        if not beside:
            looks.wait(looks.patience)
            return KChoice(best, PAYS), HOLD_STEPS
        oldest = min(beside, key=lambda k: (self._last_seen[k], -k))
        looks.wait(looks.patience)
        return KChoice(oldest, PROBE), PROBE_STEPS


def never(k: int) -> bool:
    """Return that what ``k`` drafts yield is known from their rates."""
    del k
    return False


def no_rows(k: int) -> float:
    """Return that all rows of a step with ``k`` drafts are verified."""
    del k
    return 0.0
