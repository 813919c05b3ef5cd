"""The lemmas of ``docs/block_rule.md`` as functions, each beside a variant that is false.

A claim is a function of a request, or of a target and a draft over all texts; it is true if the
lemma holds there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

from tests.ops.block_exact import ONE, ZERO, Case, Model, Row

# How far the rounded weights of lemma 12 are below the real ones, as a share.
EPSILON = Fraction(1, 50)

Claim = Callable[[Case], bool]
ModelClaim = Callable[[Model], bool]


def is_certain(case: Case) -> bool:
    return all(case.q_of(i) == 1 for i in range(case.n))


def can_be_drawn(case: Case) -> bool:
    return all(case.q_of(i) for i in range(case.n))


def chance_is_at_most_weight(case: Case) -> bool:
    return all(0 <= h <= w for h, w in zip(case.chances[1:], case.weights[1:], strict=True))


def chance_is_at_most_weight_squared(case: Case) -> bool:
    return all(h <= w * w for h, w in zip(case.chances[1:], case.weights[1:], strict=True))


def nothing_after(values: Row, case: Case) -> bool:
    """Whether no position is accepted at or after one whose value is 0."""
    return all(case.tau < i for i in range(1, case.n + 1) if values[i] == 0)


def weight_of_nothing_stays(case: Case) -> bool:
    return nothing_after(case.weights, case)


def chance_of_nothing_stays(case: Case) -> bool:
    return nothing_after(case.chances, case)


def walk(case: Case, positions: Iterator[int] | range, *, stops_at: bool) -> int:
    """Return the last position accepted before the first whose acceptance is ``stops_at``."""
    accepted = 0
    for i in positions:
        accepted = i if case.accepts(i) else accepted
        if case.accepts(i) == stops_at:
            break
    return accepted


def backwards_finds_tau(case: Case) -> bool:
    return walk(case, range(case.n, 0, -1), stops_at=True) == case.tau


def forwards_finds_tau(case: Case) -> bool:
    return walk(case, range(1, case.n + 1), stops_at=False) == case.tau


def least_weight(case: Case) -> bool:
    return all(case.tau < i for i in range(1, case.n + 1) if case.weights[i] <= case.least[i])


def least_weight_without_q(case: Case) -> bool:
    return all(case.tau < i for i in range(1, case.n + 1) if case.weights[i] <= min(case.u[i:]))


def given_up_rows(case: Case, whole: Fraction) -> Iterator[int]:
    """Yield rows whose draft is too unlikely by a part of the row; all of it weighs ``whole``."""
    for i in range(case.n):
        if not (case.weights[i] and case.q_of(i) and case.least[i + 1]):
            continue
        level = case.least[i + 1] * case.q_of(i) / case.weights[i]
        # The draft weighs as much as p says, and what was read `whole` times as much as it may.
        if any(read > case.p_of(i) / level for read in partial_sums(case.p[i], whole)):
            yield i


def partial_sums(row: Row, whole: Fraction) -> list[Fraction]:
    return [x * whole for x in itertools.accumulate(row)]


def part_of_row(case: Case) -> bool:
    return all(
        case.tau <= i and not (i and case.u[i] >= case.weights[i] and case.tau == i)
        for i in given_up_rows(case, ONE)
    )


def part_of_unfiltered_row(case: Case) -> bool:
    """What filters keep is p; what they drop weighs as much again."""
    return all(case.tau <= i for i in given_up_rows(case, Fraction(2)))


def residual_is_bounded(case: Case) -> bool:
    for i in range(case.n):
        w, total = case.weights[i], sum(case.residual(i), ZERO)
        bounds = [
            w * (1 - p) + max(w * p - q, ZERO) for p, q in zip(case.p[i], case.q[i], strict=True)
        ]
        if total > min(bounds):
            return False
        if i and case.u[i] >= case.chance_of(i, min(bounds)) and case.tau == i:
            return False
    return True


def residual_is_without_the_draft(case: Case) -> bool:
    return all(
        sum(case.residual(i), ZERO) <= case.weights[i] * (1 - case.p_of(i)) for i in range(case.n)
    )


def certain_drafts(case: Case) -> bool:
    return not is_certain(case) or needs_no_q(case)


def needs_no_q(case: Case) -> bool:
    missing = ZERO
    for i in range(case.n):
        residual, rest = case.residual(i), 1 - case.p_of(i)
        left = [ZERO if y == case.drafts[i] else p for y, p in enumerate(case.p[i])]
        total = sum(residual, ZERO)
        if total != case.weights[i] * rest or 1 - case.weights[i] != missing:
            return False
        if total and [x / total for x in residual] != [x / rest for x in left]:
            return False
        missing += case.weights[i] * rest
    return True


def tau_with(case: Case, i: int, chance: Fraction) -> int:
    """Return tau if the i-th chance were another."""
    changed = replace(case)
    changed.__dict__["chances"] = [*case.chances[:i], chance, *case.chances[i + 1 :]]
    return changed.tau


def chance_is_free_where(case: Case, *, empty: bool) -> bool:
    """Whether chances at a weight of 1, and a residual that is empty or not, decide nothing."""
    if not can_be_drawn(case):
        return True
    return all(
        tau_with(case, i, ZERO) == tau_with(case, i, ONE)
        for i in range(1, case.n)
        if case.weights[i] == 1 and (sum(case.residual(i), ZERO) == 0) == empty
    )


def empty_residual(case: Case) -> bool:
    draws = not can_be_drawn(case) or case.tau == case.n or sum(case.residual(case.tau), ZERO) > 0
    return draws and chance_is_free_where(case, empty=True)


def full_residual(case: Case) -> bool:
    return chance_is_free_where(case, empty=False)


def rounded(case: Case, room: Fraction) -> bool:
    """Whether exits on weights that are too small by EPSILON hold for uniforms with that room."""
    raised = replace(case, u=[u / room for u in case.u])
    return all(
        raised.tau < i
        for i in range(1, case.n + 1)
        if case.weights[i] * (1 - EPSILON) <= case.least[i]
    )


def exits_on_rounded_weights(case: Case) -> bool:
    return rounded(case, 1 - EPSILON)


def exits_without_room(case: Case) -> bool:
    return rounded(case, ONE)


def taus(model: Model, chances: Callable[[Case], Row]) -> Iterator[tuple[Case, int, Fraction]]:
    """Yield each text of drafts, each tau, and how often both come together."""
    for drafts in itertools.product(range(len(model.p[()])), repeat=model.n):
        case = model.case(drafts)
        left = model.chance(drafts, of_target=False)
        for i in range(model.n, -1, -1):
            here = left * (chances(case)[i] if i else ONE)
            left -= here
            yield case, i, here


def weights_are_frequencies(model: Model, chances: Callable[[Case], Row]) -> bool:
    found: dict[tuple[int, ...], Fraction] = {}
    expected: dict[tuple[int, ...], Fraction] = {}
    for case, tau, often in taus(model, chances):
        for i in range(1, model.n + 1):
            text = tuple(case.drafts[:i])
            expected[text] = model.chance(text, of_target=False) * case.weights[i]
            found[text] = found.get(text, ZERO) + (often if tau >= i else ZERO)
    return found == expected


def output_is_targets(model: Model, weight: Callable[[Case, int], Fraction]) -> bool:
    """Whether n + 1 tokens of output have the target's distribution, p's weight in r given."""
    found: dict[tuple[int, ...], Fraction] = {}
    for case, tau, often in taus(model, lambda case: case.chances):
        if not often:
            continue
        row = case.p[tau]
        if tau < model.n:
            q = case.q[tau]
            row = [max(weight(case, tau) * a - b, ZERO) for a, b in zip(row, q, strict=True)]
        for token, share in enumerate(row):
            text = (*case.drafts[:tau], token)
            found[text] = found.get(text, ZERO) + often * share / sum(row, ZERO)
    texts = itertools.product(range(len(model.p[()])), repeat=model.n + 1)
    return all(
        model.chance(text, of_target=True)
        == sum(
            often * model.chance(text, of_target=True) / model.chance(text[:k], of_target=True)
            for k in range(1, model.n + 2)
            if (often := found.get(text[:k], ZERO))
        )
        for text in texts
        if model.chance(text, of_target=True)
    )


def as_often_as_token_rule(case: Case) -> bool:
    product = ONE
    for i in range(case.n if can_be_drawn(case) else 0):
        product *= min(case.p_of(i) / case.q_of(i), ONE)
        weight = case.weights[i + 1]
        if weight < product or (is_certain(case) and weight != product):
            return False
    return True


def never_fewer_than_token_rule(case: Case) -> bool:
    accepted = [case.u[i + 1] * case.q_of(i) < case.p_of(i) for i in range(case.n)]
    return case.tau >= (accepted.index(False) if False in accepted else case.n)


CASES: dict[int, tuple[Claim, Claim]] = {
    1: (chance_is_at_most_weight, chance_is_at_most_weight_squared),
    2: (weight_of_nothing_stays, chance_of_nothing_stays),
    3: (backwards_finds_tau, forwards_finds_tau),
    4: (least_weight, least_weight_without_q),
    5: (part_of_row, part_of_unfiltered_row),
    6: (residual_is_bounded, residual_is_without_the_draft),
    7: (certain_drafts, needs_no_q),
    8: (empty_residual, full_residual),
    11: (as_often_as_token_rule, never_fewer_than_token_rule),
    12: (exits_on_rounded_weights, exits_without_room),
}
MODELS: dict[int, tuple[ModelClaim, ModelClaim]] = {
    9: (
        lambda model: weights_are_frequencies(model, lambda case: case.chances),
        lambda model: weights_are_frequencies(model, lambda case: case.weights),
    ),
    10: (
        lambda model: output_is_targets(model, lambda case, i: case.weights[i]),
        lambda model: output_is_targets(model, lambda case, i: ONE),
    ),
}
