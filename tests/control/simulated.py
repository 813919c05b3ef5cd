"""An engine made of two formulas: what a step costs, and how often a draft is accepted."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from vllm_ascend_spec.control.adaptive_k import AdaptiveK
from vllm_ascend_spec.control.step_timer import WARMUP_STEPS

# Seconds of a step: requests, rows of the target, steps of the draft.
Cost = Callable[[int, int, int], float]


def bound_by_memory(requests: int, rows: int, drafts: int) -> float:
    """Cost of a large model at small batches: rows are nearly free, drafts cheap."""
    return 0.020 + 0.00005 * rows + 0.001 * drafts


def bound_by_compute(requests: int, rows: int, drafts: int) -> float:
    """Cost of a small model, or of large batches: every row is paid for."""
    return 0.001 + 0.001 * rows + 0.0004 * drafts * (1 + requests / 8)


@dataclass
class Engine:
    """Requests that decode for ever.

    Attributes:
        cost: of a step.
        rate: how often a draft is accepted where all before it were.
        noise: relative deviation of the times.
        settling: by which share the first step with fewer drafts takes longer than later ones; it
            fades by 1/e over five steps.
        seconds: spent so far.
        tokens: written so far.
    """

    cost: Cost
    rate: float
    noise: float = 0.05
    seed: int = 0
    settling: float = 0.0
    seconds: float = 0.0
    tokens: int = 0
    chosen: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.before = 0
        self.alike = 0
        self.unsettled = 0.0

    def accepted(self, drafts: int) -> int:
        """Return how many drafts of a request are accepted."""
        count = 0
        while count < drafts and self.random.random() < self.rate:
            count += 1
        return count

    def step(self, requests: int, drafts: int, chooser: AdaptiveK | None = None) -> None:
        """Verify the drafts of the step before and make ``drafts`` new ones."""
        rows = requests * (self.before + 1)
        seconds = self.cost(requests, rows, drafts)
        seconds *= max(0.2, self.random.gauss(1.0, self.noise)) * (1.0 + self.unsettled)
        self.seconds += seconds
        for _ in range(requests):
            accepted = self.accepted(self.before)
            self.tokens += accepted + 1
            if chooser is not None and self.before:
                chooser.acceptance.note(self.before, accepted)
        self.alike = self.alike + 1 if self.before == drafts else 0
        if chooser is not None and self.alike >= WARMUP_STEPS:
            chooser.costs.note(requests, drafts, seconds)
        self.unsettled *= math.exp(-1 / 5)
        if drafts < self.before:
            self.unsettled = self.settling
        self.before = drafts
        self.chosen.append(drafts)

    @property
    def speed(self) -> float:
        """Tokens per second so far."""
        return self.tokens / self.seconds


def fixed(engine: Engine, batches: Iterable[int], drafts: int) -> float:
    """Return the speed of an engine with one K."""
    for requests in batches:
        engine.step(requests, drafts)
    return engine.speed


def adaptive(engine: Engine, batches: Iterable[int], lengths: Iterable[int]) -> float:
    """Return the speed of an engine that chooses."""
    chooser = AdaptiveK([*lengths])
    for requests in batches:
        engine.step(requests, chooser.choose(requests).k, chooser)
    return engine.speed
