"""``min_tokens`` while places of drafts stand for tokens that are not known yet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import LogitsProcessors, MinTokensLogitsProcessor
from vllm.v1.worker.gpu_input_batch import CachedRequestState, InputBatch

from tests.patches.batches import empty_batch
from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches import min_tokens_ahead as patch
from vllm_ascend_spec.verification.min_tokens import KnownTokens, MinTokens

VOCAB, STOP = 16, 5


def batch_of(processor: type, output: list[int], least: int = 4) -> InputBatch:
    """Return a batch of one request that has written ``output``."""
    batch = empty_batch(2, VOCAB)
    config: Any = SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=2))
    batch.logitsprocs = LogitsProcessors([processor(config, torch.device("cpu"), False)])
    params = SamplingParams(min_tokens=least, stop_token_ids=[STOP])
    batch.add_request(
        CachedRequestState(
            req_id="a",
            prompt_token_ids=[1, 2],
            mm_features=[],
            sampling_params=params,
            generator=None,
            block_ids=([0],),
            num_computed_tokens=0,
            output_token_ids=output,
        )
    )
    batch.refresh_metadata()
    return batch


def is_bound(batch: InputBatch) -> bool:
    """Tell whether the request may not stop."""
    (processor,) = batch.logitsprocs.non_argmax_invariant
    return bool(torch.isneginf(processor.apply(torch.zeros(1, VOCAB))[0, STOP]))


def test_stock_fault_and_patch(take_out: TakeOut) -> None:
    """Nobody corrects the output, and its places count as tokens."""
    take_out(patch)
    output = [7]
    batch = batch_of(MinTokensLogitsProcessor, output)
    assert not batch.sampling_metadata.output_token_ids
    output += [-1, -1, -1]
    batch.refresh_metadata()
    assert not is_bound(batch)
    patch.apply()
    batch = batch_of(MinTokens, output)
    assert batch.sampling_metadata.output_token_ids == [output]
    batch.refresh_metadata()
    assert is_bound(batch)


def test_enough_tokens_are_enough() -> None:
    """A step without drafts sees what was corrected after it was prepared."""
    output = [7, -1, -1, -1]
    batch = batch_of(MinTokens, output)
    assert is_bound(batch)
    output[1:] = [8, 9]
    assert is_bound(batch)
    output += [10]
    assert not is_bound(batch)


def test_the_output_is_asked_for_while_anyone_needs_it(take_out: TakeOut) -> None:
    take_out(patch)
    patch.apply()
    assert not batch_of(MinTokens, [], least=0).sampling_metadata.output_token_ids
    batch = batch_of(MinTokens, [7])
    assert not batch.logitsprocs_need_output_token_ids


@pytest.mark.parametrize("tokens", [[], [-1], [3], [3, -1, -1], [3, 4]])
def test_known_tokens(tokens: list[int]) -> None:
    known = KnownTokens(tokens)
    assert list(known) == [token for token in tokens if token >= 0]
    assert len(known) == len(list(known))
