"""Qwen3.5, Qwen3-Next and Qwen-VL on the CPU of this environment, which has torchvision.

vLLM imports it for all three.
"""

from __future__ import annotations

import pytest

from tests.ascend.this_cpu import assert_pass
from tests.marks import unless
from vllm_ascend_spec.upstream import limits

TESTS = [f"tests/e2e/test_state_{name}.py" for name in ("targets", "architectures")]
pytestmark = [unless(limits.NO_GATED_DELTA_NET_ON_CPU), pytest.mark.timeout(600)]
GOLDEN = "tests/e2e/test_golden_acceptance.py::test_acceptance_has_not_fallen"
PICTURES = ("tests/e2e/test_multimodal.py", f"{GOLDEN}[eagle3, Qwen2.5-VL-greedy]")


@pytest.mark.parametrize(
    "tests",
    [
        # In one process, which imports vLLM once.
        pytest.param([*TESTS, *PICTURES], id="answers"),
        pytest.param(
            ["-m", "nightly", *TESTS, *PICTURES[:1]], marks=pytest.mark.nightly, id="other answers"
        ),
        pytest.param(
            ["-m", "", *(f"{GOLDEN}[mtp, Qwen3.5-{request}]" for request in ("greedy", "T=0.8"))],
            marks=pytest.mark.nightly,
            id="golden acceptance",
        ),
    ],
)
def test_on_the_cpu(tests: list[str]) -> None:
    assert_pass(*tests)
