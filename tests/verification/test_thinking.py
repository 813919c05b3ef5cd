"""Each row's thinking budget against vLLM's holder, driven one token at a time without drafts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate
from vllm.v1.sample.sampler import Sampler
from vllm.v1.sample.thinking_budget_state import ThinkingBudgetStateHolder

from tests.verification.requests import (
    VOCAB,
    Request,
    make_verifier,
    num_rows,
    rows_of,
    sampling_metadata,
    spec_metadata,
    tokens_of,
)
from vllm_ascend_spec.patches.upstream import thinking_budget_state
from vllm_ascend_spec.verification.rows import expand_rows, process_rows
from vllm_ascend_spec.verification.thinking import FORCED, UNKNOWN, force_closing

SMALL = 4  # tokens in use, so that markers come up often
TOKENS = st.integers(0, SMALL - 1)
MARKER = st.lists(TOKENS, min_size=1, max_size=3)
Markers = tuple[list[int], list[int]]


@pytest.fixture(autouse=True, scope="module")
def _mended() -> Any:
    thinking_budget_state.apply()
    yield
    thinking_budget_state.revert()


def make_holder(markers: Markers, requests: list[Request], num_drafts: int) -> Any:
    """Build vLLM's holder with these requests in it."""
    reasoning: Any = SimpleNamespace(
        reasoning_start_token_ids=markers[0], reasoning_end_token_ids=markers[1]
    )
    holder = ThinkingBudgetStateHolder(
        reasoning, len(requests), num_drafts, torch.device("cpu"), False
    )
    added = [(i, r.params, r.prompt, r.output) for i, r in enumerate(requests)]
    holder.sync_batch(BatchUpdate(len(requests), removed=[], added=added, moved=[]))
    return holder


def thinking(budget: int | None, prompt: list[int]) -> Request:
    params = SamplingParams(temperature=0.0, thinking_token_budget=budget)
    return Request(params, prompt, [])


class OneByOne:
    """vLLM without speculation: one request, asked after each of its tokens what it forces."""

    def __init__(self, markers: Markers, budget: int, prompt: list[int]) -> None:
        self.output: list[int] = []
        self.holder = make_holder(markers, [thinking(budget, prompt)], 0)
        self.forced = self._ask()

    def follow(self, token: int, obey: bool = True) -> int:
        """Put out ``token``, or what is forced in its place; return it."""
        token = token if self.forced is None or not obey else self.forced
        self.output.append(token)
        self.forced = self._ask()
        return token

    def _ask(self) -> int | None:
        self.holder.update_state([self.output], None)
        return forced_in(self.holder.apply_to_logits(torch.zeros(1, VOCAB), False, None))[0]


def forced_in(logits: torch.Tensor) -> list[int | None]:
    """Return the token forced in each row, None where there is none."""
    return [int(row.argmax()) if row.max() == FORCED else None for row in logits]


def ask_rows(metadata: Any, requests: list[Request]) -> list[int | None]:
    rows = expand_rows(spec_metadata(requests), [r.drafts for r in requests])
    return forced_in(force_closing(torch.zeros(len(rows.request), VOCAB), rows, metadata))


@settings(max_examples=500)
@given(
    markers=st.tuples(MARKER, MARKER),
    budget=st.integers(0, 6),
    prompt=st.lists(TOKENS, max_size=8),
    tokens=st.lists(st.tuples(TOKENS, st.integers(0, 9)), max_size=40),
    data=st.data(),
)
def test_every_row_is_forced_as_without_speculation(
    markers: Markers,
    budget: int,
    prompt: list[int],
    tokens: list[tuple[int, int]],
    data: st.DataObject,
) -> None:
    """The output grows by any number of tokens a step; one in ten is not what was forced."""
    stock = OneByOne(markers, budget, prompt)
    forced = [stock.forced]
    for token, obey in tokens:
        stock.follow(token, obey > 0)
        forced.append(stock.forced)
    request = thinking(budget, prompt)
    metadata = sampling_metadata([request])
    metadata.thinking_budget_state_holder = make_holder(markers, [request], 3)
    while True:
        done = len(request.output)
        request.drafts = stock.output[done : done + data.draw(st.integers(0, 3))]
        expected = forced[done : done + len(request.drafts) + 1]
        assert ask_rows(metadata, [request]) == expected
        if done == len(stock.output):
            break
        step = data.draw(st.integers(1, 4))
        request.output += stock.output[done : done + step]


@given(
    markers=st.tuples(MARKER, MARKER),
    budget=st.integers(0, 6),
    prompt=st.lists(TOKENS, max_size=8),
    tokens=st.lists(TOKENS, min_size=1, max_size=40),
)
def test_wrong_drafts_leave_nothing_behind(
    markers: Markers, budget: int, prompt: list[int], tokens: list[int]
) -> None:
    stock = OneByOne(markers, budget, prompt)
    request = thinking(budget, prompt)
    metadata = sampling_metadata([request])
    metadata.thinking_budget_state_holder = make_holder(markers, [request], 3)
    for token in tokens:
        request.drafts = [(token + 1) % SMALL, *markers[1][:2]]
        assert ask_rows(metadata, [request])[0] == stock.forced
        request.output.append(stock.follow(token))


START, END = 9, [10, 11]


def holder_of(requests: list[Request]) -> Any:
    return make_holder(([START], END), requests, 3)


@pytest.mark.parametrize("budget", range(8))
def test_no_answer_exceeds_its_budget_and_no_closing_string_is_torn(budget: int) -> None:
    """Whole answers by the verifier; drafts, right and wrong ones, cross the ends of budgets."""
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        favourites = torch.randint(0, START, (64,), generator=generator).tolist()
        requests = [thinking(budget, [1, START]), thinking(None, [1, START])]
        metadata = sampling_metadata(requests)
        metadata.thinking_budget_state_holder = holder_of(requests)
        while len(requests[0].output) < 20:
            for request in requests:
                done = len(request.output)
                request.drafts = favourites[done : done + 3]
            if seed % 2:
                requests[0].drafts[1] = END[0]
            logits = torch.zeros(num_rows(requests), VOCAB)
            for request, rows in zip(requests, rows_of(requests, logits), strict=True):
                for place, row in enumerate(rows):
                    row[favourites[len(request.output) + place]] = 1.0
            said = make_verifier()(spec_metadata(requests), None, logits, metadata)
            for request, tokens in zip(requests, tokens_of(said.sampled_token_ids), strict=True):
                request.output += tokens
        closed = [*favourites[:budget], *END, *favourites[budget + 2 :]]
        assert requests[0].output == closed[: len(requests[0].output)]
        assert requests[1].output == favourites[: len(requests[1].output)]


def test_tokens_that_are_not_known_yet_are_read_again() -> None:
    """Asynchronous scheduling puts placeholders into the output and fills them in later."""
    request = thinking(3, [START])
    request.output = [1, UNKNOWN, UNKNOWN]
    metadata = sampling_metadata([request])
    metadata.thinking_budget_state_holder = holder_of([request])
    assert ask_rows(metadata, [request]) == [END[0]]
    request.output[1:] = END
    assert ask_rows(metadata, [request]) == [None]
    request.output += [2, START, 3]
    request.drafts = [4, 5, END[0]]
    assert ask_rows(metadata, [request]) == [None, None, END[0], END[1]]


def test_output_that_was_taken_back_is_read_again() -> None:
    request = thinking(3, [START])
    request.output = [1, 2, 3, *END, 4]
    metadata = sampling_metadata([request])
    metadata.thinking_budget_state_holder = holder_of([request])
    assert ask_rows(metadata, [request]) == [None]
    del request.output[3:]
    assert ask_rows(metadata, [request]) == [END[0]]


def test_each_token_is_read_once() -> None:
    class Once(list[int]):
        read = 0

        def __getitem__(self, places: Any) -> Any:
            found = super().__getitem__(places)
            Once.read += len(found) if isinstance(places, slice) else 0
            return found

    request = thinking(1000, [START])
    request.output = Once([1] * 500)
    metadata = sampling_metadata([request])
    metadata.thinking_budget_state_holder = holder_of([request])
    request.drafts = [2, 3, 4]
    for _ in range(10):
        ask_rows(metadata, [request])
        request.output.append(5)
    assert Once.read == 509


def test_what_else_changes_logits_comes_before() -> None:
    """A forced token is forced even where the request forbids it, as in vLLM."""
    requests = [thinking(0, [START])]
    requests[0].params.allowed_token_ids = [1, 2]
    metadata = sampling_metadata(requests)
    metadata.thinking_budget_state_holder = holder_of(requests)
    logits = torch.zeros(1, VOCAB)
    found = process_rows(Sampler(), logits, spec_metadata(requests), metadata).logits
    stock = sampling_metadata(requests)
    stock.thinking_budget_state_holder = make_holder(([START], END), requests, 0)
    expected = Sampler().apply_logits_processors(logits.clone(), stock, False)
    assert torch.equal(found, expected)
    assert found[0].argmax() == END[0]
    assert torch.equal(logits, torch.zeros(1, VOCAB))
