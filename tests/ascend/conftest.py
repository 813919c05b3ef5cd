"""vllm-ascend's environment, and engines in processes of their own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ascend.matrix import EXACT, Case
from vllm_ascend_spec.cli import env

ROOT = Path(__file__).parents[2]
REASON = "needs vllm-ascend, and an NPU or the simulated one: make test-npu-sim"
IS_HERE = importlib.util.find_spec("vllm_ascend") is not None
TIME_LIMIT_S = 840
COMMON = {
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
    "TRITON_INTERPRET": "1",
    # What one engine's torch_npu has compiled another one cannot load.
    "VLLM_DISABLE_COMPILE_CACHE": "1",
}
# vLLM's all_reduce on an NPU returns its input, which PyTorch refuses where CI is set.
SEVERAL_NPUS = {"TORCHINDUCTOR_ERROR_ON_CUSTOM_OP_ALIASING": "0"}
NPU = {**COMMON, "VLLM_ASCEND_SPEC_DEVICE": "npu"}
IS_SIMULATED = importlib.util.find_spec("npu_sim") is not None
if IS_SIMULATED:
    # The kernels' source; on silicon what was built of it.
    NPU["VLLM_ASCEND_SPEC_ASCENDC"] = "tests.ascend.kernels:library"
CPU = {
    **COMMON,
    "VLLM_ASCEND_SPEC_DEVICE": "cpu",
    "VLLM_PLUGINS": "ascend_spec",
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
}
Outcome = dict[str, Any]
Run = Callable[..., Outcome]


class NotHere(pytest.File):
    """Stands for a file of tests that cannot run here."""

    def collect(self) -> Iterator[pytest.Item]:
        """Return one test, which is skipped."""
        yield SkippedFile.from_parent(self, name="all")


class SkippedFile(pytest.Item):
    """Says why a file is skipped."""

    def runtest(self) -> None:
        """Skip."""
        pytest.skip(REASON)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return what pytest shows."""
        return self.path, 0, self.name


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> Any:
    """Import no test file where vllm-ascend is not installed."""
    return None if IS_HERE else NotHere.from_parent(parent, path=module_path)


if IS_HERE:
    # For the tests that run in this process, before anything imports torch or vLLM.
    os.environ.update(NPU, VLLM_PLUGINS=str(env.plugins({})))


@pytest.fixture(scope="session")
def run_engine(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return ``run(case, environment=NPU) -> outcome``; equal engines run once."""
    outcomes: dict[str, Outcome] = {}

    def run(case: Case, environment: dict[str, str] = NPU, **job: Any) -> Outcome:
        folder = tmp_path_factory.mktemp("engine")
        job |= {
            "arguments": case.arguments(),
            "spec": case.spec(),
            "requests": list(case.requests),
        }
        key = json.dumps([job, environment], sort_keys=True)
        if key not in outcomes:
            devices = {"NPU_SIM_DEVICES": str(case.devices)}
            devices |= SEVERAL_NPUS if case.devices > 1 else {}
            output = str(folder / "outcome.json")
            outcomes[key] = start({**job, "output": output}, environment | devices)
        return outcomes[key]

    return run


def start(job: dict[str, Any], environment: dict[str, str]) -> Outcome:
    """Run one engine and return its outcome; its last words if it fails."""
    given = {name: value for name, value in os.environ.items() if name not in (*NPU, *CPU)}
    plugins = {"VLLM_PLUGINS": str(env.plugins({}))}
    done = subprocess.run(
        [sys.executable, "-m", "tests.ascend.engine"],
        input=json.dumps(job),
        env={**given, **plugins, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    output = Path(job["output"])
    if not output.is_file():
        pytest.fail(f"the engine ended with {done.returncode}:\n{done.stderr[-4000:]}")
    return json.loads(output.read_text())


@pytest.fixture(scope="session")
def on_cpu(run_engine: Run) -> Outcome:
    """What a CPU answers without speculation, whatever the kind of request."""
    return run_engine(
        Case(method=None, mode="eager", requests=(*EXACT, "logprobs")),
        CPU,
    )
