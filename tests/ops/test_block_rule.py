"""The block rule by hand; that it is lossless is shown in ``test_enumeration.py``."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.ops.batches import SAMPLE_BACKENDS, as_lists, float64, int32, make_sampled
from vllm_ascend_spec.ops import verify_sample

JUST_BELOW_ONE = 1 - 2**-53
# Below 1 by more than rounding.
NEAR_ONE = 1 - 2**-16


@pytest.fixture(scope="module", params=SAMPLE_BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


def output_of(
    backend: str,
    target: list[list[float]],
    drafts: list[int],
    draft_probs: list[list[float]] | None,
    accept: list[float],
    sample: float = 0.5,
    **filters: torch.Tensor,
) -> list[int]:
    """Return the tokens of one request, given as probabilities."""
    arguments: dict[str, Any] = {
        "logits": torch.tensor(target).log(),
        "draft_token_ids": int32(drafts),
        "cu_num_draft_tokens": int32([len(drafts)]),
        "max_draft_len": len(drafts),
        "temperature": torch.ones(1),
        "draft_probs": None if draft_probs is None else torch.tensor(draft_probs),
        "accept_uniform": float64(accept),
        "sample_uniform": float64([sample]),
        **filters,
    }
    (tokens,), (count,) = as_lists(verify_sample(**arguments, rule="block", backend=backend))
    assert tokens[count:] == [-1] * (len(tokens) - count)
    return tokens[:count]


# Certain drafts 1 and 2: w = .5, .15; h_1 = .5 · .7 / (.5 · .7 + .5) = .4118, h_2 = w_2.
CERTAIN = [[0.2, 0.5, 0.3]] * 3


@pytest.mark.parametrize(
    ("accept", "num_accepted"),
    [
        ([0.41, 0.99], 1),
        ([0.42, 0.99], 0),
        ([0.41, 0.16], 1),
        ([0.42, 0.16], 0),
        ([0.41, 0.14], 2),
        # Refused alone, and still part of the block that is accepted.
        ([JUST_BELOW_ONE, 0.14], 2),
    ],
)
def test_certain_drafts(backend: str, accept: list[float], num_accepted: int) -> None:
    output = output_of(backend, CERTAIN, [1, 2], None, accept)
    assert len(output) == num_accepted + 1
    assert output[:-1] == [1, 2][:num_accepted]


@pytest.mark.parametrize(
    ("accept", "sample", "last"),
    [
        # No draft is accepted: p without draft 1, .2 and .3.
        ([0.99, 0.99], 0.39, 0),
        ([0.99, 0.99], 0.41, 2),
        # One is: p without draft 2, .2 and .5.
        ([0.1, 0.99], 0.28, 0),
        ([0.1, 0.99], 0.29, 1),
        # Both are: p.
        ([0.1, 0.1], 0.19, 0),
        ([0.1, 0.1], 0.69, 1),
        ([0.1, 0.1], 0.71, 2),
    ],
)
def test_token_after_certain_drafts(
    backend: str, accept: list[float], sample: float, last: int
) -> None:
    assert output_of(backend, CERTAIN, [1, 2], None, accept, sample)[-1] == last


P, Q = [1 / 3, 2 / 3], [2 / 3, 1 / 3]


@pytest.mark.parametrize(
    ("drafts", "accept", "output"),
    [
        # w = 1/2, 1: what the first draft lost, the second brings back.
        ([0, 1], [NEAR_ONE, NEAR_ONE], [0, 1]),
        ([1, 1], [NEAR_ONE, NEAR_ONE], [1, 1]),
        # w = 1, 1/2; h_1 = 1.
        ([1, 0], [NEAR_ONE, 0.49], [1, 0]),
        ([1, 0], [NEAR_ONE, 0.51], [1]),
        # w = 1/2, 1/4; R_1 = 0, so the first draft is never accepted alone.
        ([0, 0], [0.0, 0.24], [0, 0]),
        ([0, 0], [0.0, 0.26], []),
    ],
)
def test_papers_example(
    backend: str, drafts: list[int], accept: list[float], output: list[int]
) -> None:
    tokens = output_of(backend, [P] * 3, drafts, [Q] * 2, accept)
    assert tokens[:-1] == output
    # The residual of p - q is all token 1; the bonus token is one half down p: token 1 too.
    assert tokens[-1] == 1


# The first draft leaves w_1 = .8, then .8 p - q = .28, .04, -.52 and h_1 = .32 / .52 = .6154.
WEIGHTED = ([[0.4, 0.6, 0.0], [0.6, 0.3, 0.1], [0.2, 0.5, 0.3]], [[0.5, 0.5, 0.0], [0.2, 0.2, 0.6]])


@pytest.mark.parametrize(
    ("accept", "sample", "output"),
    [
        (0.615, 0.874, [0, 0]),
        (0.615, 0.876, [0, 1]),
        # By p - q = .4, .1 it would be token 1 from .8 on.
        (0.615, 0.81, [0, 0]),
        # Without w_1 the draft would be accepted up to .5 / (.5 + 0) = 1, by w_1 alone up to .8.
        (0.616, 0.5, [1]),
        (0.79, 0.5, [1]),
    ],
)
def test_weight_of_the_block_enters_chance_and_residual(
    backend: str, accept: float, sample: float, output: list[int]
) -> None:
    target, draft = WEIGHTED
    # The second draft has w_2 = .8 · .1 / .6 = .133.
    accepts = [accept, 0.14]
    assert output_of(backend, target, [0, 2], draft, accepts, sample) == output
    assert len(output_of(backend, target, [0, 2], draft, [accept, 0.13], sample)) == 3


@pytest.mark.parametrize("draft_probs", [None, [[0.25, 0.5, 0.25]] * 3])
def test_draft_of_minus_one_ends_the_block(
    backend: str, draft_probs: list[list[float]] | None
) -> None:
    # As the last of its block, the first draft is accepted by w_1: .5, or 1 where q is p.
    target = [[0.2, 0.5, 0.3]] * 4
    limit = 0.5 if draft_probs is None else JUST_BELOW_ONE
    for sample, last in ((0.19, 0), (0.21, 1), (0.71, 2)):
        output = output_of(backend, target, [1, -1, 1], draft_probs, [limit - 0.01, 0, 0], sample)
        assert output == [1, last]
    if draft_probs is None:
        assert len(output_of(backend, target, [1, -1, 1], None, [0.51, 0, 0])) == 1
    output = output_of(backend, target, [-1, 1, 1], draft_probs, [0, 0, 0], 0.21)
    assert output == [1]


@pytest.mark.parametrize("drafts", [[0, 1, 2], [2, 2, 2], [1]])
def test_drafts_of_the_targets_own_distribution_are_accepted(
    backend: str, drafts: list[int]
) -> None:
    # In binary fractions, so that p equals q in float32.
    p = [0.25, 0.5, 0.25]
    target = [p] * (len(drafts) + 1)
    output = output_of(backend, target, drafts, [p] * len(drafts), [NEAR_ONE] * len(drafts))
    assert output[:-1] == drafts


@pytest.mark.parametrize("draft_probs", [None, [[0.3, 0.3, 0.4]] * 3])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_nothing_from_an_excluded_draft_on_is_accepted(
    backend: str, place: int, draft_probs: list[list[float]] | None
) -> None:
    # Token 0 is not among the two most likely.
    drafts = [1, 1, 1]
    drafts[place] = 0
    target = [[0.2, 0.5, 0.3]] * 4
    output = output_of(backend, target, drafts, draft_probs, [0.0] * 3, top_k=int32([2]))
    assert len(output) <= place + 1
    assert 0 not in output


def test_draft_that_its_model_could_not_draw_is_accepted_if_the_target_could(backend: str) -> None:
    output = output_of(
        backend, [[0.2, 0.5, 0.3]] * 2, [2], [[0.5, 0.5, 0.0]], [JUST_BELOW_ONE], 0.1
    )
    assert output == [2, 0]


def test_impossible_draft_before_one_its_model_could_not_draw(backend: str) -> None:
    # 0 · (p / 0) must stay 0.
    target = [[0.0, 0.5, 0.5], [0.2, 0.5, 0.3], [1.0, 0.0, 0.0]]
    output = output_of(backend, target, [0, 2], [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]], [0.0, 0.0])
    assert output[0] in (1, 2)
    assert len(output) == 1


@pytest.mark.parametrize("with_draft_probs", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_rules_agree_where_there_is_at_most_one_draft(
    backend: str, seed: int, with_draft_probs: bool
) -> None:
    arguments = make_sampled([1, 0, 1, 1, 1], 6, seed, with_draft_probs=with_draft_probs)
    by_token = verify_sample(**arguments, rule="token", backend=backend)
    by_block = verify_sample(**arguments, rule="block", backend=backend)
    assert as_lists(by_token) == as_lists(by_block)


def test_greedy_requests_do_not_go_by_any_rule(backend: str) -> None:
    arguments = make_sampled([4, 3, 0, 5], 3, seed=2, with_draft_probs=True)
    arguments["temperature"] = torch.zeros(4)
    by_token = verify_sample(**arguments, rule="token", backend=backend)
    by_block = verify_sample(**arguments, rule="block", backend=backend)
    assert as_lists(by_token) == as_lists(by_block)
