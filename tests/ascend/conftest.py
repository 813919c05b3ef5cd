"""Tests on vllm-ascend: the NPU's environment, engines, and a skip where it is not installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.ascend.environment import CPU, IS_HERE, NPU, REASON
from tests.ascend.matrix import EXACT, Case
from tests.ascend.processes import Engines, Outcome, Run
from tests.engines import session_folder
from tests.patches.cases import TakeOut, taking_out
from vllm_ascend_spec.cli import env


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
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """Engines in processes of their own."""
    with closing(Engines(session_folder(tmp_path_factory, "engines"))) as engines:
        yield engines


@pytest.fixture(scope="session")
def run_engine(engines: Engines) -> Run:
    """Return ``run(case, environment=NPU) -> outcome``; equal engines run once."""
    return engines.run


@pytest.fixture(scope="session")
def on_cpu(run_engine: Run) -> Outcome:
    """What a CPU answers without speculation, whatever the kind of request."""
    return run_engine(
        Case(method=None, mode="eager", requests=(*EXACT, "logprobs")),
        CPU,
    )


@pytest.fixture
def take_out() -> Iterator[TakeOut]:
    """Return a function that reverts a patch until the test is over."""
    with taking_out() as take_out:
        yield take_out
