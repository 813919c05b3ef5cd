"""Sampling parameters spread over rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor
from vllm.v1.sample.rejection_sampler import RejectionSampler
from vllm.v1.sample.sampler import Sampler
from vllm.v1.sample.thinking_budget_state import ThinkingBudgetStateHolder

from tests.verification.requests import (
    CUSTOM,
    VOCAB,
    BatchLevel,
    Request,
    RowWise,
    num_rows,
    sampling_metadata,
    spec_metadata,
)
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.verification.rows import (
    constrain_rows,
    expand_rows,
    min_p_of,
    needs_rows,
    require_row_support,
)


def request(drafts: tuple[int, ...] = (), **params: Any) -> Request:
    return Request(
        SamplingParams(**{"temperature": 0.0, **params}),
        prompt=[1, 2],
        output=[3],
        drafts=[*drafts],
    )


def test_each_row_takes_the_drafts_before_it_for_granted() -> None:
    rows = expand_rows(spec_metadata([request((7, 8)), request(), request((9,))]))
    assert rows.request == [0, 0, 0, 1, 2, 2]
    assert rows.drafts == [[], [7], [7, 8], [], [], [9]]


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


def test_min_p_is_found_for_every_request() -> None:
    metadata = sampling_metadata([request(temperature=1.0, min_p=0.25), request(temperature=1.0)])
    found = min_p_of(metadata)
    assert found is not None
    assert found.tolist() == [0.25, 0.0]


def test_min_p_is_absent_where_no_request_has_one() -> None:
    assert min_p_of(sampling_metadata([request(temperature=1.0)])) is None
    assert min_p_of(sampling_metadata([request(temperature=1.0)], custom=())) is None


def constrain(requests: list[Request], logits: torch.Tensor, **extra: Any) -> Any:
    metadata = sampling_metadata(requests, **extra)
    return constrain_rows(Sampler(), logits, spec_metadata(requests), metadata)


def test_constrained_rows_are_a_float32_copy() -> None:
    requests = [request((4,), repetition_penalty=2.0)]
    logits = torch.ones(2, VOCAB, dtype=torch.bfloat16)
    rows, temperature = constrain(requests, logits)
    assert rows.dtype == torch.float32
    assert temperature is None
    assert (logits == 1).all()
    # Prompt and output (1, 2, 3) count in both rows, the draft (4) in the second only.
    assert (rows[0] != 1).nonzero()[:, 0].tolist() == [1, 2, 3]
    assert (rows[1] != 1).nonzero()[:, 0].tolist() == [1, 2, 3, 4]


def test_temperature_is_used_up_only_where_a_processor_comes_after_it() -> None:
    logits = torch.arange(2.0 * VOCAB).view(2, VOCAB)
    biased = [request((4,), temperature=0.5, logit_bias={0: 1.0})]
    rows, temperature = constrain(biased, logits)
    assert temperature.tolist() == [0.5]
    assert torch.equal(rows[:, 1:], logits[:, 1:])
    flat = [request((4,), temperature=0.5, extra_args={"flatten": 0.5})]
    rows, temperature = constrain(flat, logits)
    assert temperature.tolist() == [1.0]
    # Flatten squares its factor where the output's length is odd: 3 is the output's only token.
    assert torch.allclose(rows[0], logits[0] / 0.5 * 0.25)
    assert torch.allclose(rows[1], logits[1] / 0.5 * 0.5)


def test_greedy_requests_stay_greedy_beside_a_late_processor() -> None:
    requests = [
        request((4,), temperature=0.5, extra_args={"flatten": 0.5}),
        request((5,), logit_bias={1: 1.0}),
    ]
    _, temperature = constrain(requests, torch.zeros(4, VOCAB))
    assert temperature.tolist() == [1.0, 0.0]


def test_batch_level_processor_gets_rows_through_its_own_method() -> None:
    requests = [request((7,)), request()]
    metadata = sampling_metadata(requests, custom=(RowWise,))
    assert needs_rows(metadata)
    rows, _ = constrain_rows(Sampler(), torch.zeros(3, VOCAB), spec_metadata(requests), metadata)
    (processor,) = (p for p in metadata.logitsprocs.all if isinstance(p, RowWise))
    assert processor.calls == [([0, 0, 1], [[], [7], []])]
    assert rows[:, 0].tolist() == [1.0, 1.0, 2.0]


@pytest.mark.parametrize("supported", [*CUSTOM, RowWise, AdapterLogitsProcessor])
def test_supported_processors_pass(supported: type) -> None:
    require_row_support(supported)


def test_batch_level_processor_without_the_method_is_refused() -> None:
    with pytest.raises(ConfigError) as raised:
        require_row_support(BatchLevel)
    message = str(raised.value)
    assert message.startswith("logits_processors='BatchLevel': ")
    assert "AdapterLogitsProcessor" in message
    assert "apply_to_rows(logits, row_request, row_drafts)" in message


def budget_holder(requests: list[Request], num_drafts: int) -> ThinkingBudgetStateHolder:
    reasoning: Any = SimpleNamespace(reasoning_start_token_ids=[9], reasoning_end_token_ids=[10])
    holder = ThinkingBudgetStateHolder(
        reasoning, len(requests), num_drafts, torch.device("cpu"), False
    )
    added = [(i, r.params, r.prompt, r.output) for i, r in enumerate(requests)]
    holder.sync_batch(SimpleNamespace(removed=[], added=added, moved=[]))  # type: ignore[arg-type]
    return holder


def stock_budget(requests: list[Request], logits: torch.Tensor, metadata: Any) -> torch.Tensor:
    """Apply the thinking budget as vLLM's rejection sampler does: bonus rows, then the others."""
    spec = spec_metadata(requests)
    result = logits.clone()
    bonus, target = spec.bonus_logits_indices, spec.target_logits_indices
    result[bonus] = Sampler().apply_logits_processors(logits[bonus], metadata, True)
    stock: Any = object.__new__(RejectionSampler)
    result[target] = RejectionSampler.apply_logits_processors(stock, logits[target], metadata, spec)
    return result


@pytest.mark.parametrize("budget", [*range(8), 100])
def test_thinking_budget_is_that_of_vllms_rejection_sampler(budget: int) -> None:
    def batch() -> list[Request]:
        thinking = SamplingParams(temperature=0.0, thinking_token_budget=budget)
        plain = SamplingParams(temperature=0.0)
        return [
            Request(plain, prompt=[1], output=[2], drafts=[3, 4]),
            Request(thinking, prompt=[1, 9], output=[2, 3], drafts=[4, 5, 6]),
            Request(thinking, prompt=[1], output=[9, 2, 3], drafts=[4]),
            Request(thinking, prompt=[1, 9], output=[2], drafts=[]),
        ]

    ours, stock = batch(), batch()
    results = []
    for requests in (ours, stock):
        metadata = sampling_metadata(requests)
        metadata.thinking_budget_state_holder = budget_holder(requests, 3)
        forced = []
        for _ in range(3):
            logits = torch.zeros(num_rows(requests), VOCAB)
            if requests is ours:
                assert needs_rows(metadata)
                rows, _ = constrain_rows(Sampler(), logits, spec_metadata(requests), metadata)
            else:
                rows = stock_budget(requests, logits, metadata)
            forced.append(rows)
            for request in requests:
                request.output.append(4)
        results.append(torch.stack(forced))
    assert torch.equal(*results)
    assert (results[0] != 0).any() == (budget < 100)


def test_argmax_invariant_processor_is_ignored_where_all_are_greedy() -> None:
    logits = torch.randn(2, VOCAB)
    rows, temperature = constrain([request((4,), extra_args={"flatten": 0.5})], logits)
    assert temperature is None
    assert torch.equal(rows, logits)
