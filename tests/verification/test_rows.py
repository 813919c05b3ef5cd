"""Sampling parameters spread over rows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from vllm.v1.sample.logits_processor import MinPLogitsProcessor
from vllm.v1.sample.sampler import Sampler

from tests.verification.requests import (
    VOCAB,
    Request,
    request,
    sampling_metadata,
    spec_metadata,
)
from vllm_ascend_spec.verification.rows import (
    ProcessedLogits,
    expand_rows,
    needs_rows,
    process_rows,
)


def test_each_row_takes_the_drafts_before_it_for_granted() -> None:
    rows = expand_rows(spec_metadata([request((7, 8)), request(), request((9,))]))
    assert rows.request == [0, 0, 0, 1, 2, 2]
    assert rows.drafts == [[], [7], [7, 8], [], [], [9]]


class OnDevice:
    """Drafts that nobody should have to wait for."""

    def tolist(self) -> list[int]:
        raise AssertionError("the device was waited for")


@pytest.mark.parametrize(
    ("on_host", "is_used"),
    [
        ([[7, 8], [], [9]], True),
        ([[7, 8], [], [9], [], []], True),
        (None, False),
        ([[-1, -1], [], [-1]], False),
        ([[7], [], [9]], False),
    ],
)
def test_drafts_known_on_the_host_are_not_asked_of_the_device(
    on_host: list[list[int]] | None, is_used: bool
) -> None:
    """A batch's list may be longer; placeholders and stale lists are of no use."""
    metadata = spec_metadata([request((7, 8)), request(), request((9,))])
    assert expand_rows(metadata, on_host) == expand_rows(metadata)
    metadata.draft_token_ids = OnDevice()  # type: ignore[assignment]
    if is_used:
        expand_rows(metadata, on_host)
    else:
        with pytest.raises(AssertionError, match="waited for"):
            expand_rows(metadata, on_host)


@pytest.mark.parametrize(
    ("params", "is_waited_for"),
    [
        ({"logit_bias": {1: 1.0}, "min_tokens": 4, "stop_token_ids": [2], "min_p": 0.1}, False),
        ({"allowed_token_ids": [1]}, False),
        ({"repetition_penalty": 1.2}, True),
        ({"extra_args": {"repeat_penalty": 1.0}}, True),
    ],
)
def test_the_device_is_waited_for_only_where_drafts_are_read(
    params: dict[str, Any], is_waited_for: bool
) -> None:
    """With asynchronous scheduling the host does not know them."""
    requests = [request(), request((1,), temperature=0.5, **params)]
    spec = spec_metadata(requests)
    spec.draft_token_ids = OnDevice()  # type: ignore[assignment]
    sampling = replace(sampling_metadata(requests), spec_token_ids=[[], [-1]])
    run = partial(process_rows, Sampler(), torch.randn(3, VOCAB), spec, sampling)
    if is_waited_for:
        with pytest.raises(AssertionError, match="waited for"):
            run()
    else:
        run()


@pytest.mark.parametrize(
    "params",
    [
        {"repetition_penalty": 1.2},
        {"presence_penalty": 0.5},
        {"frequency_penalty": -0.5},
        {"logit_bias": {1: 1.0}},
        {"min_tokens": 4},
        {"allowed_token_ids": [1]},
        {"extra_args": {"repeat_penalty": 1.0}},
        {"extra_args": {"flatten": 0.5}},
    ],
)
def test_options_that_change_logits_need_rows(params: dict[str, Any]) -> None:
    assert needs_rows(sampling_metadata([request(), request((1,), **params)]))


def test_bad_words_need_rows() -> None:
    bad = request((1,))
    bad.bad_words = [[1, 2]]
    assert needs_rows(sampling_metadata([request(), bad]))


@pytest.mark.parametrize(
    "params",
    [{}, {"temperature": 0.7, "top_k": 3, "top_p": 0.9, "min_p": 0.1}, {"temperature": 1.0}],
)
def test_what_the_op_does_itself_needs_no_rows(params: dict[str, Any]) -> None:
    assert not needs_rows(sampling_metadata([request((1,), **params), request()]))


def test_min_tokens_that_are_reached_need_no_rows() -> None:
    assert not needs_rows(sampling_metadata([request((1,), min_tokens=1)]))


def constrain(requests: list[Request], logits: torch.Tensor, **extra: Any) -> ProcessedLogits:
    metadata = sampling_metadata(requests, **extra)
    return process_rows(Sampler(), logits, spec_metadata(requests), metadata)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_are_the_targets_own_where_nothing_applies(dtype: torch.dtype) -> None:
    logits = torch.randn(4, VOCAB).to(dtype)
    before = logits.clone()
    sampled = request((4,), temperature=0.5, top_k=3, top_p=0.9, min_p=0.25)
    found = constrain([sampled, request((5,))], logits)
    assert found.logits is logits
    assert torch.equal(logits, before)
    assert found.temperature is not None
    assert found.temperature.tolist() == [0.5, 0.0]
    assert found.min_p is not None
    assert found.min_p.tolist() == [0.25, 0.0]
    greedy = constrain([request((4,)), request((5,))], logits)
    assert greedy == ProcessedLogits(logits, None, None)


def test_constrained_rows_are_a_float32_copy() -> None:
    requests = [request((4,), repetition_penalty=2.0)]
    logits = torch.ones(2, VOCAB, dtype=torch.bfloat16)
    found = constrain(requests, logits)
    rows = found.logits
    assert rows.dtype == torch.float32
    assert found.temperature is None
    assert (logits == 1).all()
    # Prompt and output (1, 2, 3) count in both rows, the draft (4) in the second only.
    assert (rows[0] != 1).nonzero()[:, 0].tolist() == [1, 2, 3]
    assert (rows[1] != 1).nonzero()[:, 0].tolist() == [1, 2, 3, 4]


def test_temperature_is_used_up_only_where_a_processor_comes_after_it() -> None:
    logits = torch.arange(2.0 * VOCAB).view(2, VOCAB)
    biased = [request((4,), temperature=0.5, logit_bias={0: 1.0})]
    found = constrain(biased, logits)
    assert found.temperature is not None
    assert found.temperature.tolist() == [0.5]
    assert torch.equal(found.logits[:, 1:], logits[:, 1:])
    flat = [request((4,), temperature=0.5, extra_args={"flatten": 0.5})]
    found = constrain(flat, logits)
    assert found.temperature is not None
    assert found.temperature.tolist() == [1.0]
    # Flatten squares its factor where the output's length is odd: 3 is the output's only token.
    assert torch.allclose(found.logits[0], logits[0] / 0.5 * 0.25)
    assert torch.allclose(found.logits[1], logits[1] / 0.5 * 0.5)


def test_min_p_is_left_for_the_op_where_no_processor_comes_after_it() -> None:
    requests = [request((4,), temperature=0.5, min_p=0.25, logit_bias={0: 1.0}), request()]
    found = constrain(requests, torch.zeros(3, VOCAB))
    assert found.min_p is not None
    assert found.min_p.tolist() == [0.25, 0.0]
    assert found.logits.isfinite().all()


@pytest.mark.parametrize("min_p_first", [True, False])
def test_min_p_is_applied_in_its_place_among_late_processors(min_p_first: bool) -> None:
    # Two drafts: Flatten's factor is 0.25, 0.5 and 0.25; min-p keeps fewer tokens before it.
    requests = [
        request((4, 5), temperature=0.5, min_p=0.3, extra_args={"flatten": 0.5}),
        request((6,), temperature=2.0),
    ]
    logits = torch.randn(5, VOCAB, generator=torch.Generator().manual_seed(0))
    metadata = sampling_metadata(requests)
    late = metadata.logitsprocs.argmax_invariant
    assert isinstance(late[0], MinPLogitsProcessor)
    if not min_p_first:
        late.reverse()
    found = process_rows(Sampler(), logits, spec_metadata(requests), metadata)
    assert found.min_p is None
    assert found.temperature is not None
    assert found.temperature.tolist() == [1.0, 1.0]
    floor = torch.tensor(0.3).log()
    for row, factor in enumerate((0.25, 0.5, 0.25)):
        flat = logits[row] / 0.5 * factor
        judged = logits[row] / 0.5 if min_p_first else flat
        expected = flat.masked_fill(judged < judged.max() + floor, float("-inf"))
        torch.testing.assert_close(found.logits[row], expected)
        assert expected.isneginf().any()
    torch.testing.assert_close(found.logits[3:], logits[3:] / 2.0)


def test_greedy_requests_stay_greedy_beside_a_late_processor() -> None:
    requests = [
        request((4,), temperature=0.5, extra_args={"flatten": 0.5}),
        request((5,), logit_bias={1: 1.0}),
    ]
    temperature = constrain(requests, torch.zeros(4, VOCAB)).temperature
    assert temperature is not None
    assert temperature.tolist() == [1.0, 0.0]


def test_argmax_invariant_processor_is_ignored_where_all_are_greedy() -> None:
    logits = torch.randn(2, VOCAB)
    found = constrain([request((4,), extra_args={"flatten": 0.5})], logits)
    assert found.temperature is None
    assert torch.equal(found.logits, logits)
