"""Logits processors on rows: each kind by its handler, and which custom ones are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from vllm.v1.sample.logits_processor import (
    BUILTIN_LOGITS_PROCESSORS,
    AdapterLogitsProcessor,
    MinPLogitsProcessor,
)
from vllm.v1.sample.sampler import Sampler

from tests.verification.requests import (
    CUSTOM,
    VOCAB,
    BatchLevel,
    RowWise,
    budget_holder,
    request,
    sampling_metadata,
    spec_metadata,
)
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.verification.processors import (
    HANDLERS,
    ROW_METHOD,
    apply_processor,
    is_active,
    mask_min_p,
    min_p_of,
    require_row_support,
)
from vllm_ascend_spec.verification.rows import Rows, needs_rows, process_requests, process_rows

USED = {"logit_bias": {1: 2.0}, "min_tokens": 3, "stop_token_ids": [4], "min_p": 0.3}


@pytest.mark.parametrize("kind", [*BUILTIN_LOGITS_PROCESSORS, AdapterLogitsProcessor])
def test_each_kind_of_vllms_has_a_handler_of_its_own(kind: type) -> None:
    """The last handler wants a method that vLLM's own processors do not have."""
    assert kind in [handler.kind for handler in HANDLERS]
    assert HANDLERS[-1].kind is object
    assert not hasattr(kind, ROW_METHOD)


@pytest.mark.parametrize("kind", [*BUILTIN_LOGITS_PROCESSORS, *CUSTOM])
def test_without_drafts_a_handler_does_what_vllm_does(kind: type) -> None:
    extra = {"repeat_penalty": 1.5, "follow": 2.0, "flatten": 0.5}
    requests = [request(temperature=1.0, extra_args=extra, **USED), request(temperature=1.0)]
    requests[0].prompt = [3, 1]  # what followed the output's last token once
    (processor,) = (p for p in sampling_metadata(requests).logitsprocs.all if type(p) is kind)
    logits = torch.randn(2, VOCAB, generator=torch.Generator().manual_seed(2)) * 3
    expected = processor.apply(logits.clone())
    assert not torch.equal(expected, logits)
    assert torch.equal(expected[1], logits[1])
    assert is_active(processor)
    found = apply_processor(processor, logits.clone(), Rows([0, 1], [[], []], [-1, -1]))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", [*BUILTIN_LOGITS_PROCESSORS, *CUSTOM])
def test_a_processor_that_no_request_uses_is_not_active(kind: type) -> None:
    metadata = sampling_metadata([request(temperature=1.0), request()])
    (processor,) = (p for p in metadata.logitsprocs.all if type(p) is kind)
    assert not is_active(processor)


def test_min_p_is_found_for_every_request() -> None:
    metadata = sampling_metadata([request(temperature=1.0, min_p=0.25), request(temperature=1.0)])
    found = min_p_of(metadata)
    assert found is not None
    assert found.tolist() == [0.25, 0.0]


def test_min_p_is_absent_where_no_request_has_one() -> None:
    assert min_p_of(sampling_metadata([request(temperature=1.0)])) is None
    assert min_p_of(sampling_metadata([request(temperature=1.0)], custom=())) is None


def test_min_p_masks_what_vllms_processor_masks() -> None:
    requests = [request(temperature=1.0, min_p=p) for p in (0.0, 0.05, 0.5, 1.0)]
    (stock,) = (
        processor
        for processor in sampling_metadata(requests).logitsprocs.argmax_invariant
        if isinstance(processor, MinPLogitsProcessor)
    )
    logits = torch.randn(4, VOCAB, generator=torch.Generator().manual_seed(1)) * 2
    logits[:, 3] = float("-inf")
    before = logits.clone()
    masked = mask_min_p(logits, stock.min_p[:, 0])
    assert torch.equal(logits, before)
    assert torch.equal(masked, stock.apply(logits.clone()))
    assert masked.isneginf().sum(-1)[[0, 3]].tolist() == [1, VOCAB - 1]
    assert mask_min_p(logits, None) is logits


def test_batch_level_processor_gets_rows_through_its_own_method() -> None:
    requests = [request((7,)), request()]
    metadata = sampling_metadata(requests, custom=(RowWise,))
    assert needs_rows(metadata)
    zeros = torch.zeros(3, VOCAB)
    rows = process_rows(Sampler(), zeros, spec_metadata(requests), metadata).logits
    (processor,) = (p for p in metadata.logitsprocs.all if isinstance(p, RowWise))
    assert processor.calls == [([0, 0, 1], [[], [7], []])]
    assert rows[:, 0].tolist() == [1.0, 1.0, 2.0]


def test_without_speculation_any_batch_level_processor_is_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None is refused there."""
    monkeypatch.setattr(BatchLevel, "apply", lambda self, logits: logits + 3.0)
    metadata = sampling_metadata([request(), request()], custom=(BatchLevel,))
    assert (process_requests(Sampler(), torch.zeros(2, VOCAB), metadata).logits == 3.0).all()


def test_without_speculation_vllms_code_gets_the_batch_as_it_is() -> None:
    """It enforces thinking budgets there, and counts in its own record."""
    seen = []

    class Noting(Sampler):
        def apply_logits_processors(self, logits: torch.Tensor, *rest: Any) -> torch.Tensor:
            seen.append(rest)
            return super().apply_logits_processors(logits, *rest)

    requests = [request(thinking_token_budget=0), request(temperature=1.0)]
    requests[0].prompt = [1, 9]
    metadata = sampling_metadata(requests)
    metadata.thinking_budget_state_holder = budget_holder(requests, 0)
    logits = process_requests(Noting(), torch.zeros(2, VOCAB), metadata).logits
    assert seen == [(metadata, False)]
    assert logits.argmax(dim=-1)[0] == 10  # which ends the thought


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
