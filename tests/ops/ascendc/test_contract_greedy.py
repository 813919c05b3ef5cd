"""The contract of ``verify_greedy``, by its own tests, for the AscendC kernel in the emulator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ops.ascendc.kernels import make_emulator
from tests.ops.emulator.build import requires_compiler
from tests.ops.test_verify_greedy import (
    test_a_batch_without_any_drafts,
    test_accepts_the_longest_right_prefix_and_adds_one_token,
    test_an_empty_batch,
    test_arguments_are_not_modified,
    test_equals_the_oracle,
    test_equals_the_oracle_on_vocabularies_of_odd_sizes,
    test_requests_without_drafts_get_one_token,
    test_result_is_as_wide_as_max_draft_len,
    test_row_stride_may_exceed_the_vocabulary,
    test_rows_after_the_first_rejection_do_not_matter,
    test_ties_nan_and_rows_of_nothing,
)
from vllm_ascend_spec.ops.ascendc_library import use

__all__ = [
    "test_a_batch_without_any_drafts",
    "test_accepts_the_longest_right_prefix_and_adds_one_token",
    "test_an_empty_batch",
    "test_arguments_are_not_modified",
    "test_equals_the_oracle",
    "test_equals_the_oracle_on_vocabularies_of_odd_sizes",
    "test_requests_without_drafts_get_one_token",
    "test_result_is_as_wide_as_max_draft_len",
    "test_row_stride_may_exceed_the_vocabulary",
    "test_rows_after_the_first_rejection_do_not_matter",
    "test_ties_nan_and_rows_of_nothing",
]

pytestmark = requires_compiler


@pytest.fixture(scope="module", params=["split", "by request"])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    with use(make_emulator(num_cores=5, mode=request.param, tile=64)):
        yield "ascendc"
