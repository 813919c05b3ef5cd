"""vLLM's own tests of its rejection sampler and of the end of the context, with our parts in place.

They come with its source distribution and are run on the CPU; stock vLLM 0.30 passes none of them
there (see the patches in patches/). What is put in is in plugin/our_verifier.py.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from vllm import __version__

from tests.upstream.theirs import SOURCES, run_their_tests

SOURCE = SOURCES / f"vllm-{__version__.partition('+')[0]}"
SAMPLER = "tests/v1/sample/test_rejection_sampler.py"
CONTEXT = "tests/v1/spec_decode/test_max_len.py"
# It only makes a SpeculativeConfig, for a method that this release does not have.
LEFT_OUT = f"{CONTEXT}::test_mtp_speculative_config_max_model_len"
# Of these vLLM calls a function of its own, on its own kernels, which patches/ patches on a CPU.
ITS_OWN_FUNCTION = f"{SAMPLER}::test_sample_recovered_tokens"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run the tests and return how each ended."""
    if not (SOURCE / SAMPLER).is_file():
        pytest.skip(f"vLLM's tests are not in {SOURCE}; .ci/get-vllm-tests fetches them")
    return run_their_tests(
        SOURCE,
        [SAMPLER, CONTEXT, "--deselect", LEFT_OUT],
        "our_verifier",
        tmp_path_factory.mktemp("vllm"),
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        OMP_NUM_THREADS="1",
    )


def test_all_pass(report: Any) -> None:
    assert report["failed"] == {}
    assert report["skipped"] == {}
    passed = Counter(test.partition("::")[0] for test in report["passed"])
    assert passed == {SAMPLER: 75, CONTEXT: 6}


def test_our_verifier_was_in_place(report: Any) -> None:
    without = {test for test in report["passed"] if not report["verified"].get(test)}
    own = {test for test in report["passed"] if test.startswith(ITS_OWN_FUNCTION)}
    assert without == own


def test_our_parts_were_in_the_engines(report: Any) -> None:
    assert {test.startswith(CONTEXT) for test in report["parts"]} == {True}
    assert len(report["parts"]) == 6
    assert {tuple(parts) for parts in report["parts"].values()} == {
        ("NgramDrafter", "SpecVerifier"),
        ("EagleVllmDrafter", "SpecVerifier"),
    }
