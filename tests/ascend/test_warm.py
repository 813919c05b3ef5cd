"""A process that engines are copied from says what went wrong, and leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.ascend.environment import IS_SIMULATED, NPU
from tests.ascend.matrix import Case
from tests.ascend.processes import Engines
from tests.ascend.targets.mla import MLA_ENVIRONMENT
from tests.ascend.warm import READ_LATE, WarmProcess

pytestmark = pytest.mark.skipif(not IS_SIMULATED, reason="on silicon engines start from nothing")


@pytest.mark.nightly  # all engines by day come from such a process
def test_engines_of_one_environment_are_copied_from_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever comes into this process's environment meanwhile; one that fails says why.

    Whether of one NPU or of two, and whatever is read late.
    """
    engines = Engines(tmp_path / "engines")
    assert MLA_ENVIRONMENT.keys() == set(READ_LATE)
    late = {**NPU, **MLA_ENVIRONMENT}
    for devices, model, environment in ((1, "/no/such/model", NPU), (2, "/no/other/model", late)):
        monkeypatch.setenv("PYTEST_CURRENT_TEST", f"test {devices}")
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", f"folder {devices}")
        case = Case(method=None, mode="eager", engine={"model": model}, devices=devices)
        with pytest.raises(pytest.fail.Exception, match=rf"(?s)the engine ended with 1:.*{model}"):
            engines.run(case, environment)
    assert len(engines._warm._running) == 1
    engines.close()


def test_an_engine_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    process = WarmProcess(os.environ, tmp_path / "log")
    group = os.getpgid(process._process.pid)
    with pytest.raises(TimeoutError, match=r"more than 0\.2 seconds"):
        process.run({}, 0.2)
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)


def test_a_process_that_cannot_start_says_why(tmp_path: Path) -> None:
    process = WarmProcess(os.environ | {"PYTHONHOME": "/nowhere"}, tmp_path / "log")
    with pytest.raises(RuntimeError, match=r"(?s)ended with 1:.*encodings"):
        process.run({}, 60)
