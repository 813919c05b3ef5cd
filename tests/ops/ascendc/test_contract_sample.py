"""The contract of ``verify_sample``, by its own tests, for the AscendC kernel in the emulator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ops.ascendc.kernels import make_emulator
from tests.ops.batches import RULES
from tests.ops.emulator.build import requires_compiler
from tests.ops.test_verify_sample import (
    Variant,
    test_a_batch_without_any_drafts,
    test_a_request_does_not_depend_on_its_batch,
    test_an_empty_batch,
    test_arguments_are_not_modified,
    test_certain_draft_is_accepted_with_the_targets_probability,
    test_draft_equal_to_the_target_is_always_accepted,
    test_draft_of_infinite_probability_is_rejected,
    test_draft_of_minus_one_is_replaced_by_a_sample_of_the_target,
    test_draft_of_nan_ends_the_block,
    test_draft_of_nan_is_replaced_by_a_sample_of_the_target,
    test_draft_of_no_probability_is_accepted_as_the_quotient_says,
    test_draft_that_the_filters_exclude_is_rejected,
    test_equals_the_oracle,
    test_equals_the_oracle_on_vocabularies_of_odd_sizes,
    test_filters_cut_where_they_should,
    test_filters_keep_ties_together,
    test_greedy_and_sampled_requests_share_a_batch,
    test_greedy_requests_ignore_nan_in_draft_probs,
    test_impossible_tokens_are_never_put_out,
    test_nan_and_negative_entries_of_other_tokens_count_as_0,
    test_nan_counts_as_minus_infinity,
    test_narrow_logits_equal_the_same_values_in_float32,
    test_row_of_nothing_yields_token_0,
    test_row_stride_may_exceed_the_vocabulary,
    test_rows_that_are_not_needed_do_not_matter,
    test_sampled_draft_is_accepted_with_the_ratio_of_probabilities,
    test_tokens_at_infinity_share_all_of_the_mass,
)
from vllm_ascend_spec.ops.ascendc_library import use

__all__ = [
    "test_a_batch_without_any_drafts",
    "test_a_request_does_not_depend_on_its_batch",
    "test_an_empty_batch",
    "test_arguments_are_not_modified",
    "test_certain_draft_is_accepted_with_the_targets_probability",
    "test_draft_equal_to_the_target_is_always_accepted",
    "test_draft_of_infinite_probability_is_rejected",
    "test_draft_of_minus_one_is_replaced_by_a_sample_of_the_target",
    "test_draft_of_nan_ends_the_block",
    "test_draft_of_nan_is_replaced_by_a_sample_of_the_target",
    "test_draft_of_no_probability_is_accepted_as_the_quotient_says",
    "test_draft_that_the_filters_exclude_is_rejected",
    "test_equals_the_oracle",
    "test_equals_the_oracle_on_vocabularies_of_odd_sizes",
    "test_filters_cut_where_they_should",
    "test_filters_keep_ties_together",
    "test_greedy_and_sampled_requests_share_a_batch",
    "test_greedy_requests_ignore_nan_in_draft_probs",
    "test_impossible_tokens_are_never_put_out",
    "test_nan_and_negative_entries_of_other_tokens_count_as_0",
    "test_nan_counts_as_minus_infinity",
    "test_narrow_logits_equal_the_same_values_in_float32",
    "test_row_of_nothing_yields_token_0",
    "test_row_stride_may_exceed_the_vocabulary",
    "test_rows_that_are_not_needed_do_not_matter",
    "test_sampled_draft_is_accepted_with_the_ratio_of_probabilities",
    "test_tokens_at_infinity_share_all_of_the_mass",
]

pytestmark = requires_compiler


@pytest.fixture(scope="module", params=["split", "by request"])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    with use(make_emulator(num_cores=5, mode=request.param, tile=64)):
        yield "ascendc"


@pytest.fixture(scope="module", params=RULES)
def op(request: pytest.FixtureRequest, backend: str) -> Variant:
    return Variant(backend, request.param)
