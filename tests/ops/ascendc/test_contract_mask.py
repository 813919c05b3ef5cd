"""The contract of ``grammar_mask``, by its own tests, for the AscendC kernel under the emulator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ops.ascendc.kernels import make_emulator
from tests.ops.emulator.build import requires_compiler
from tests.ops.test_grammar_mask import (
    test_bits_stand_for_tokens,
    test_equals_the_definition,
    test_equals_the_reference_on_large_vocabularies,
    test_masking_twice_is_masking_once,
    test_masks_are_not_modified,
    test_masks_of_row_minus_one_are_skipped,
    test_no_masks_change_nothing,
    test_other_rows_are_left_alone,
    test_row_indices_may_be_a_view,
    test_rows_may_start_anywhere,
    test_what_lies_between_the_rows_is_left_alone,
)
from vllm_ascend_spec.ops.ascendc_library import use

__all__ = [
    "test_bits_stand_for_tokens",
    "test_equals_the_definition",
    "test_equals_the_reference_on_large_vocabularies",
    "test_masking_twice_is_masking_once",
    "test_masks_are_not_modified",
    "test_masks_of_row_minus_one_are_skipped",
    "test_no_masks_change_nothing",
    "test_other_rows_are_left_alone",
    "test_row_indices_may_be_a_view",
    "test_rows_may_start_anywhere",
    "test_what_lies_between_the_rows_is_left_alone",
]

pytestmark = requires_compiler


@pytest.fixture(scope="module", params=[1, 7, 48])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    with use(make_emulator(num_cores=request.param)):
        yield "ascendc"
