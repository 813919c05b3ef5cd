"""The block rule in exact fractions as ``docs/block_rule.md`` defines it, and small cases."""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

ZERO, ONE = Fraction(0), Fraction(1)
Row = list[Fraction]


@dataclass(frozen=True)
class Case:
    """One request: its rows, its drafts and its uniforms.

    Attributes:
        p: the target's distributions, n + 1 rows.
        q: the drafts' distributions, n rows.
        drafts: n tokens.
        u: u[i] belongs to the i-th draft; u[0] is not used.
    """

    p: list[Row]
    q: list[Row]
    drafts: list[int]
    u: list[Fraction]

    @property
    def n(self) -> int:
        return len(self.drafts)

    def p_of(self, i: int) -> Fraction:
        """Return what row i gives the draft that follows it."""
        return self.p[i][self.drafts[i]]

    def q_of(self, i: int) -> Fraction:
        return self.q[i][self.drafts[i]]

    @cached_property
    def weights(self) -> Row:
        found = [ONE]
        for i in range(self.n):
            scaled, q = found[i] * self.p_of(i), self.q_of(i)
            # What is divided by 0 is infinite.
            quotient = scaled / q if q else ONE
            found.append(min(quotient, ONE) if scaled else ZERO)
        return found

    def residual(self, i: int) -> Row:
        return [
            max(self.weights[i] * p - q, ZERO) for p, q in zip(self.p[i], self.q[i], strict=True)
        ]

    def chance_of(self, i: int, residual: Fraction) -> Fraction:
        """Return the chance of 0 < i < n if its residual summed to ``residual``."""
        weight = self.weights[i]
        return ONE if weight == 1 else residual / (residual + 1 - weight)

    @cached_property
    def chances(self) -> Row:
        """Return h; h[0] is not used."""
        inner = [self.chance_of(i, sum(self.residual(i), ZERO)) for i in range(1, self.n)]
        return [ZERO, *inner, self.weights[self.n]]

    def accepts(self, i: int) -> bool:
        return self.u[i] < self.chances[i]

    @property
    def tau(self) -> int:
        return max([0, *(i for i in range(1, self.n + 1) if self.accepts(i))])

    @cached_property
    def least(self) -> Row:
        """Return L; L[0] is not used."""
        found = [self.u[self.n]]
        for i in range(self.n - 1, 0, -1):
            found.insert(0, min(self.u[i], self.q_of(i) * found[0]))
        return [ZERO, *found]


def distribution(source: random.Random, size: int) -> Row:
    """Return a random distribution; some of its entries are 0."""
    parts = [source.choice((0, 0, 1, 1, 2, 3, 5, 8, 40)) for _ in range(size)]
    if not any(parts):
        parts[source.randrange(size)] = 1
    return [Fraction(part, sum(parts)) for part in parts]


def one_hot(token: int, size: int) -> Row:
    return [ONE if i == token else ZERO for i in range(size)]


def make_case(source: random.Random, *, certain: bool) -> Case:
    """Return a random case; its uniforms lie anywhere, or just beside a threshold."""
    size, n = source.randint(2, 4), source.randint(1, 4)
    p = [distribution(source, size) for _ in range(n + 1)]
    drafts = [source.randrange(size) for _ in range(n)]
    q = [one_hot(token, size) for token in drafts]
    if not certain:
        q = [source.choice((row, distribution(source, size))) for row in p[:n]]
        # What was drawn from q, as a rule; sometimes what cannot have been.
        drafts = [
            source.choices(range(size), row)[0] if source.random() < 0.9 else token
            for row, token in zip(q, drafts, strict=True)
        ]
    case = Case(p, q, drafts, [ZERO] * (n + 1))
    levels = [x for x in (*case.weights, *case.chances) if x < 1]
    u = [
        source.choice((Fraction(source.randrange(1000), 1000), source.choice([*levels, ZERO])))
        for _ in range(n + 1)
    ]
    return Case(p, q, drafts, u)


@dataclass(frozen=True)
class Model:
    """Target and draft over all texts of n + 1 tokens: a row of each for every shorter text."""

    p: dict[tuple[int, ...], Row]
    q: dict[tuple[int, ...], Row]
    n: int

    def case(self, drafts: tuple[int, ...]) -> Case:
        before = [drafts[:i] for i in range(self.n + 1)]
        return Case(
            [self.p[text] for text in before],
            [self.q[text] for text in before[:-1]],
            list(drafts),
            [ZERO] * (self.n + 1),
        )

    def chance(self, text: tuple[int, ...], *, of_target: bool) -> Fraction:
        rows, product = self.p if of_target else self.q, ONE
        for i, token in enumerate(text):
            product *= rows[text[:i]][token]
        return product


def make_model(source: random.Random, size: int, n: int, *, certain: bool) -> Model:
    p: dict[tuple[int, ...], Row] = {}
    q: dict[tuple[int, ...], Row] = {}
    texts: list[tuple[int, ...]] = [()]
    for i in range(n + 1):
        for text in texts:
            p[text] = distribution(source, size)
            if i < n:
                q[text] = distribution(source, size)
                if certain:
                    q[text] = one_hot(source.randrange(size), size)
        texts = [(*text, token) for text in texts for token in range(size)]
    return Model(p, q, n)
