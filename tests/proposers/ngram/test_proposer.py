"""The n-gram search: what it finds, and that it is compiled before the first request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from numba import njit
from vllm.v1.spec_decode import ngram_proposer as stock

from tests.proposers.engine import MAX_LENGTH, make_batch, make_config
from vllm_ascend_spec.config.schema import SpecOptions
from vllm_ascend_spec.proposers.ngram import proposer as ours
from vllm_ascend_spec.proposers.ngram.proposer import SpecNgramProposer

LOOKUP = {"prompt_lookup_min": 2, "prompt_lookup_max": 4}


def create(batch: Any, num_drafts: int = 3) -> SpecNgramProposer:
    runner = SimpleNamespace(input_batch=batch)
    return SpecNgramProposer.create(make_config(num_drafts, **LOOKUP), None, runner, SpecOptions())


def propose(proposer: SpecNgramProposer, batch: Any, *sampled: list[int], num_drafts: int) -> Any:
    arrays = (batch.num_tokens_no_spec, batch.token_ids_cpu)
    return proposer.propose(num_drafts, list(sampled), *arrays, slot_mappings=None)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the search as it is in a new process: not compiled for anything."""
    search = njit(parallel=True)(stock.batch_propose_numba.py_func)
    monkeypatch.setattr(stock, "batch_propose_numba", search)
    return search


def test_nothing_is_compiled_in_the_first_request(fresh: Any) -> None:
    batch = make_batch([1, 2, 3, 1, 2], [4, 5], [6])
    proposer = create(batch)
    assert len(fresh.signatures) == 1
    propose(proposer, batch, [2], [], [6], num_drafts=3)
    propose(proposer, batch, [2], num_drafts=1)
    assert len(fresh.signatures) == 1


def test_without_our_warm_up_it_would_be(fresh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "warm_up", lambda *_: None)
    batch = make_batch([1, 2, 3, 1, 2])
    proposer = create(batch)
    assert len(fresh.signatures) == 0
    propose(proposer, batch, [2], num_drafts=3)
    assert len(fresh.signatures) == 1


def test_drafts_are_what_followed_the_longest_ngram() -> None:
    batch = make_batch(
        [7, 1, 2, 3, 4, 5, 9, 1, 2, 3],  # 1 2 3 was followed by 4 5 9
        [1, 2, 8, 8, 1, 2],
        [1, 2, 3, 4, 5, 6],  # nothing twice
        [1, 2, 1, 2],  # a prompt that goes on
    )
    proposer = create(batch)
    drafts = propose(proposer, batch, [3], [2], [6], [], num_drafts=3)
    assert drafts == [[4, 5, 9], [8, 8, 1], [], []]
    assert propose(proposer, batch, [3], [2], num_drafts=1) == [[4], [8]]
    assert propose(proposer, batch, [3], [2], num_drafts=0) == [[], []]


def test_drafts_end_with_the_context() -> None:
    text = [1, 2, 3, 4] * (MAX_LENGTH // 4)
    batch = make_batch(text[:-1], text)
    assert propose(create(batch), batch, [3], [4], num_drafts=3) == [[4], []]
