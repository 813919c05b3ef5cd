"""A request is restricted by its own ``allowed_token_ids`` only."""

from __future__ import annotations

from typing import Any

import pytest
from vllm import SamplingParams
from vllm.v1.worker.gpu_input_batch import CachedRequestState, InputBatch

from tests.patches.batches import empty_batch
from vllm_ascend_spec.patches.upstream import allowed_token_mask

VOCAB = 16


@pytest.fixture
def batch() -> InputBatch:
    return empty_batch(4, VOCAB)


@pytest.fixture
def patched() -> Any:
    allowed_token_mask.apply()
    yield
    allowed_token_mask.revert()


@pytest.fixture
def stock() -> None:
    allowed_token_mask.revert()


def add(batch: InputBatch, name: str, allowed: list[int] | None) -> None:
    request = CachedRequestState(
        req_id=name,
        prompt_token_ids=[1, 2],
        mm_features=[],
        sampling_params=SamplingParams(allowed_token_ids=allowed),
        generator=None,
        block_ids=([0],),
        num_computed_tokens=0,
        output_token_ids=[],
    )
    batch.add_request(request)


def remove(batch: InputBatch, name: str) -> None:
    batch.remove_request(name)
    batch.condense()
    batch.refresh_metadata()


def forbidden(batch: InputBatch, name: str) -> int:
    batch.refresh_metadata()
    mask = batch.sampling_metadata.allowed_token_ids_mask
    return 0 if mask is None else int(mask[batch.req_id_to_index[name]].sum())


def reuse_a_slot(batch: InputBatch) -> int:
    """A restricted request moves from slot 1 to 0; a free one takes slot 1."""
    add(batch, "free", None)
    add(batch, "restricted", [3, 4])
    batch.refresh_metadata()
    remove(batch, "free")
    add(batch, "newcomer", None)
    assert forbidden(batch, "restricted") == VOCAB - 2
    return forbidden(batch, "newcomer")


def swap_slots(batch: InputBatch) -> tuple[int, int]:
    add(batch, "restricted", [3, 4])
    add(batch, "free", None)
    batch.refresh_metadata()
    batch.swap_states(0, 1)
    return forbidden(batch, "restricted"), forbidden(batch, "free")


def test_a_newcomer_is_free(batch: InputBatch, patched: None) -> None:
    assert reuse_a_slot(batch) == 0


def test_without_the_patch_a_newcomer_is_restricted(batch: InputBatch, stock: None) -> None:
    assert reuse_a_slot(batch) == VOCAB - 2


def test_swapped_requests_keep_their_own(batch: InputBatch, patched: None) -> None:
    assert swap_slots(batch) == (VOCAB - 2, 0)


def test_without_the_patch_swapped_requests_end_up_the_same(batch: InputBatch, stock: None) -> None:
    restricted, free = swap_slots(batch)
    assert restricted == free
