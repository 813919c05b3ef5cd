"""Triton kernels on tensors' own memory, each launch one device op.

The bridge changes Triton for the whole process, so the cases run in a process of their own, on CPU
tensors that stand for NPU tensors.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

CASES = Path(__file__).with_name("triton_cases.py")


def run(script, *, interpret=None):
    """Run a script without the simulator, with or without a choice of Triton's mode."""
    kept = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    chosen = {} if interpret is None else {"TRITON_INTERPRET": interpret}
    return subprocess.run(
        [sys.executable, *script],
        env={**kept, **chosen, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def outcomes():
    """Give what went wrong in each case, "" for nothing."""
    done = run([str(CASES)])
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "case",
    [
        "a_kernel_writes_to_the_tensor_itself",
        "a_view_of_another_dtype",
        "keywords_tuples_and_missing_tensors",
        "an_error_in_a_kernel_is_raised",
        "additions_of_triton_ascend",
        "scalars_that_are_compared_are_bits",
        "a_tuned_kernel_takes_its_first_configuration",
        "triton_knows_one_device",
    ],
)
def test_bridge(outcomes, case):
    assert outcomes[case] == ""


@pytest.mark.parametrize("interpret", [None, "0"])
def test_triton_imported_before_is_refused(interpret):
    code = "import triton; from npu_sim import triton_bridge; triton_bridge.install(None, None)"
    done = run(["-c", code], interpret=interpret)
    assert "TritonModeError: Triton was imported before the simulator" in done.stderr
