"""The slot mapping of one draft step on a CPU."""

from __future__ import annotations

import pytest
import torch
from vllm.platforms import current_platform
from vllm.utils import cpu_triton_utils
from vllm.v1.spec_decode import utils

from tests.marks import requires_cpu_build
from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches import cpu_eagle_step_kernel as patch
from vllm_ascend_spec.patches.patching import Patches

pytestmark = requires_cpu_build


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    """Load what an engine has loaded by the time it drafts."""
    current_platform.import_kernels()


def step() -> tuple[list[int], list[int], list[int]]:
    """Advance three requests: inside a block, into the next one, and past the end."""
    positions, seq_lens = torch.tensor([1, 3, 15]), torch.tensor([2, 4, 16], dtype=torch.int32)
    clamped, slots = torch.zeros_like(positions), torch.zeros_like(positions)
    utils.eagle_step_update_slot_mapping_and_metadata(
        positions,
        torch.tensor([[9, 8, 7, 6], [5, 4, 3, 2], [1, 0, 11, 12]], dtype=torch.int32),
        seq_lens,
        4,
        16,
        clamped,
        slots,
    )
    return clamped.tolist(), slots.tolist(), seq_lens.tolist()


def test_stock_fault_and_patch(take_out: TakeOut) -> None:
    take_out(patch)
    with pytest.raises(TypeError, match="Cannot inspect kernel parameters"):
        step()
    patch.apply()
    assert step() == ([2, 4, 0], [38, 16, utils.PADDING_SLOT_ID], [3, 5, 1])


def test_vllms_own_fall_back_does_not_take_the_dispatchers_names(take_out: TakeOut) -> None:
    take_out(patch)
    plugged_in = Patches()
    stock = cpu_triton_utils.eagle_step_slot_mapping_metadata_kernel
    plugged_in.set_kernel(utils._eagle_step_slot_mapping_metadata, stock)
    try:
        with pytest.raises(TypeError, match="stride"):
            step()
    finally:
        plugged_in.revert()


def test_reverting_brings_the_fault_back(take_out: TakeOut) -> None:
    take_out(patch)
    patch.apply()
    step()
    patch.revert()
    with pytest.raises(TypeError, match="Cannot inspect kernel parameters"):
        step()
