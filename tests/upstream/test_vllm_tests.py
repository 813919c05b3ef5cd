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


# By day tests/ops has what a sampler has to do, and e2e/test_greedy_equality.py the end of the
# context, with all methods.
pytestmark = pytest.mark.nightly
# Tests of each file, and how many pass.
FILES = [pytest.param((SAMPLER, 75), id="sampler"), pytest.param((CONTEXT, 6), id="context")]


@pytest.fixture(scope="module", params=FILES)
def file(request: pytest.FixtureRequest) -> tuple[str, int]:
    """Return the path of a file and the number of its tests."""
    return request.param


@pytest.fixture(scope="module")
def report(file: tuple[str, int], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run the tests of a file and return how each ended."""
    if not (SOURCE / SAMPLER).is_file():
        pytest.skip(f"vLLM's tests are not in {SOURCE}; .ci/get-vllm-tests fetches them")
    return run_their_tests(
        SOURCE,
        [file[0], "--deselect", LEFT_OUT],
        "our_verifier",
        tmp_path_factory.mktemp("vllm"),
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        OMP_NUM_THREADS="1",
    )


def test_all_pass(file: tuple[str, int], report: Any) -> None:
    name, number = file
    assert report["failed"] == {}
    assert report["skipped"] == {}
    passed = Counter(test.partition("::")[0] for test in report["passed"])
    assert passed == {name: number}


def test_our_verifier_was_in_place(file: tuple[str, int], report: Any) -> None:
    without = {test for test in report["passed"] if not report["verified"].get(test)}
    own = {test for test in report["passed"] if test.startswith(ITS_OWN_FUNCTION)}
    assert without == own
    assert bool(own) == (file[0] == SAMPLER)


def test_our_parts_were_in_the_engines(file: tuple[str, int], report: Any) -> None:
    assert {test.startswith(CONTEXT) for test in report["parts"]} <= {True}
    assert len(report["parts"]) == (file[1] if file[0] == CONTEXT else 0)
    drafters = {"NgramDrafter", "EagleVllmDrafter"} if report["parts"] else set()
    assert {tuple(parts) for parts in report["parts"].values()} == {
        (drafter, "SpecVerifier") for drafter in drafters
    }
