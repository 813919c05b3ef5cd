"""What the block rule is for: it accepts more drafts than the token rule, by exact enumeration."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from tests.ops.batches import SAMPLE_BACKENDS
from tests.ops.enumeration import Case, Prefix, mean_accepted
from tests.ops.test_enumeration import CASES, describe

# Breakpoints are found to 1e-9, and float32 draft probabilities add up to 1 ± 1e-7.
ROUNDING = 1e-6
SEVERAL = [case for case in CASES if case.sampled and case.num_drafts > 1]


def both_rules(case: Case, backend: str = "reference") -> tuple[float, float]:
    """Return the mean number of accepted drafts by the token and by the block rule."""
    token, block = (mean_accepted(replace(case, rule=rule), backend) for rule in ("token", "block"))
    return token, block


@pytest.mark.parametrize("case", SEVERAL, ids=describe)
def test_block_rule_accepts_no_fewer_drafts(case: Case) -> None:
    token, block = both_rules(case)
    assert block >= token - ROUNDING


def test_block_rule_accepts_more_drafts_as_a_rule() -> None:
    gains = []
    for seed in range(8):
        token, block = both_rules(Case(4, 3, sampled=True, seed=seed))
        gains.append(block / token - 1)
    assert min(gains) > -ROUNDING
    assert sum(gain > 0.01 for gain in gains) >= 6, gains


@pytest.mark.parametrize("case", [case for case in CASES if not case.sampled], ids=describe)
def test_rules_accept_as_many_certain_drafts(case: Case) -> None:
    token, block = both_rules(case)
    assert block == pytest.approx(token, abs=1e-8)


@pytest.mark.parametrize("case", [c for c in CASES if c.num_drafts == 1], ids=describe)
def test_rules_accept_as_many_where_there_is_one_draft(case: Case) -> None:
    token, block = both_rules(case)
    assert block == pytest.approx(token, abs=1e-8)


@dataclass(frozen=True)
class PaperCase(Case):
    """The paper's example: two tokens, p = (1/3, 2/3) and q = (2/3, 1/3) everywhere."""

    def target_logits(self, prefix: Prefix) -> list[float]:
        del prefix
        return torch.tensor([1 / 3, 2 / 3]).log().tolist()

    def draft(self, prefix: Prefix) -> list[float]:
        del prefix
        return torch.tensor([2 / 3, 1 / 3]).tolist()


@pytest.fixture(scope="module", params=SAMPLE_BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


def test_rules_accept_what_the_paper_says(backend: str) -> None:
    token, block = both_rules(PaperCase(2, 2, sampled=True), backend)
    assert token == pytest.approx(10 / 9, abs=ROUNDING)
    assert block == pytest.approx(11 / 9, abs=ROUNDING)
