"""vllm-ascend's own unit tests of speculative decoding, with our proposers in place of its own.

They come with its source distribution and run on a CPU with torch_npu mocked. The exclusions are
checked, too: each has to fail, so that none outlives its reason.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.upstream.theirs import SOURCES, run_their_tests

SOURCE = SOURCES / "vllm-ascend"
FOLDER = "tests/ut/spec_decode"
# Stock: 432 passed and 13 skipped.
FEWEST_PASSED = 400

WIDTH = "draft steps 2..K are asserted to be as wide as the first, K+1 rows a request; ours have 1"
HALF_MADE = (
    "of models whose draft steps share what an indexer selected, which vllm-ascend's loop drafts "
    "for; the proposer is made by half, and has no runner to ask for the sampling parameters"
)
SUBCLASS = (
    "of another method's proposer, whose base is vllm-ascend's and not ours, compared with ours"
)
CONTEXT = "of the loop without a forward context, or with a mock; ours opens one for later steps"
EAGLE = f"{FOLDER}/test_eagle_proposer.py::TestEagleProposerPropose::test_propose"
SHARING = f"{FOLDER}/test_eagle_proposer.py::TestDeepSeekMTPIndicesSharing"
MERGED = f"{FOLDER}/test_eagle_proposer.py::TestRunMergedDraft::test_run_merged_draft"
BASE = f"{FOLDER}/test_llm_base_proposer.py"
GROUPS = f"{FOLDER}/test_multi_kv_cache_group_proposer.py"
# Beginning of test ids -> why they cannot pass with our proposers.
EXCLUDED = {
    f"{EAGLE}[eager-": WIDTH,
    f"{EAGLE}[full-": WIDTH,
    f"{BASE}::test_dcp_draft_capture_query_layout[1-1-False-False]": WIDTH,
    f"{MERGED}_dflash_": CONTEXT,
    f"{MERGED}_eagle3_decode_": CONTEXT,
    f"{MERGED}_early_return_": CONTEXT,
    f"{MERGED}_mtp_mrope_": CONTEXT,
    f"{SHARING}::test_run_merge_draft_mtp_": HALF_MADE,
    f"{GROUPS}::test_multi_group_proposer_directly_inherits_ascend_eagle": SUBCLASS,
    f"{GROUPS}::test_draft_step_update_": SUBCLASS,
    f"{GROUPS}::test_initialize_attn_backend_delegates_single_kv_cache_group": SUBCLASS,
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run the tests and return how each ended."""
    if not (SOURCE / FOLDER).is_dir():
        pytest.skip(f"vllm-ascend's tests are not in {SOURCE}; make test-npu-sim has them")
    return run_their_tests(
        SOURCE,
        [FOLDER],
        "our_proposers",
        tmp_path_factory.mktemp("vllm_ascend"),
        # Neither torch_npu nor a simulated NPU: these tests mock it.
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )


def test_our_proposers_were_in_place(report: Any) -> None:
    ours = set(report["swapped"].values())
    assert {name.rpartition(".")[2] for name in ours} >= {
        "EagleAscendDrafter",
        "DraftModelAscendDrafter",
    }


def test_vllm_ascends_tests_pass(report: Any) -> None:
    wrong = {
        test: why
        for test, why in report["failed"].items()
        if not any(test.startswith(beginning) for beginning in EXCLUDED)
    }
    assert not wrong
    assert len(report["passed"]) >= FEWEST_PASSED


def test_exclusions_are_needed(report: Any) -> None:
    for beginning in EXCLUDED:
        assert any(test.startswith(beginning) for test in report["failed"]), beginning
    assert len(report["failed"]) <= 24
