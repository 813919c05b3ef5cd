"""The inputs of a DFlash head on a CPU."""

from __future__ import annotations

import pytest
import torch
from vllm.platforms import current_platform
from vllm.v1.spec_decode import utils

from tests.marks import requires_cpu_build
from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches import cpu_dflash_inputs_kernel as patch

pytestmark = requires_cpu_build
MASK, BLOCK, NUM_DRAFTS = 99, 4, 2


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    """Load what an engine has loaded by the time it drafts."""
    current_platform.import_kernels()


def lay_out() -> dict[str, list[int]]:
    """Lay out two requests: one of three tokens, and one of two whose last was rejected."""
    found = {
        "out_input_ids_ptr": torch.zeros(6, dtype=torch.int32),
        "out_context_positions_ptr": torch.zeros(5, dtype=torch.int64),
        "out_query_positions_ptr": torch.zeros(6, dtype=torch.int64),
        "out_context_slot_mapping_ptr": torch.zeros(5, dtype=torch.int64),
        "out_query_slot_mapping_ptr": torch.zeros(6, dtype=torch.int64),
        "out_token_indices_ptr": torch.zeros(4, dtype=torch.int32),
    }
    table = torch.tensor([[9, 8], [5, 4]], dtype=torch.int32)
    utils._copy_and_expand_dflash_inputs(
        next_token_ids_ptr=torch.tensor([7, 6], dtype=torch.int32),
        target_positions_ptr=torch.tensor([0, 1, 2, 2, 3]),
        **found,
        block_table_ptr=table,
        block_table_stride=table.stride(0),
        query_start_loc_ptr=torch.tensor([0, 3, 5], dtype=torch.int32),
        num_rejected_tokens_ptr=torch.tensor([0, 1], dtype=torch.int32),
        parallel_drafting_token_id=MASK,
        block_size=BLOCK,
        num_query_per_req=1 + NUM_DRAFTS,
        num_speculative_tokens=NUM_DRAFTS,
        total_input_tokens=5,
        max_tokens_per_req=6,
        triton_block_size=8,
        has_num_rejected=True,
    )
    return {name: value.tolist() for name, value in found.items()}


EXPECTED = {
    "out_input_ids_ptr": [7, MASK, MASK, 6, MASK, MASK],
    "out_context_positions_ptr": [0, 1, 2, 2, 3],
    "out_query_positions_ptr": [3, 4, 5, 3, 4, 5],
    "out_context_slot_mapping_ptr": [36, 37, 38, 22, 23],
    "out_query_slot_mapping_ptr": [39, 32, 33, 23, 16, 17],
    "out_token_indices_ptr": [1, 2, 4, 5],
}


def test_stock_fault_and_patch(take_out: TakeOut) -> None:
    take_out(patch)
    with pytest.raises(TypeError, match="Cannot inspect kernel parameters"):
        lay_out()
    patch.apply()
    assert lay_out() == EXPECTED


def test_reverting_brings_the_fault_back(take_out: TakeOut) -> None:
    take_out(patch)
    patch.apply()
    lay_out()
    patch.revert()
    with pytest.raises(TypeError, match="Cannot inspect kernel parameters"):
        lay_out()
