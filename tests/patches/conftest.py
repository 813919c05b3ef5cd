"""Fixtures of the patches' tests, which run in every version that has the fault."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patches.cases import TakeOut, taking_out
from vllm_ascend_spec.patches.registry import PATCHES

REASONS = {f"test_{patch.name.rpartition('.')[2]}": patch.reason_not_needed() for patch in PATCHES}


class NotHere(pytest.File):
    """Stands for the tests of a patch that the installed version does not need."""

    def collect(self) -> Iterator[pytest.Item]:
        """Return one test, which is skipped."""
        yield SkippedFile.from_parent(self, name="all")


class SkippedFile(pytest.Item):
    """Says why a file is skipped."""

    def runtest(self) -> None:
        """Skip."""
        pytest.skip(f"not needed: {REASONS[self.path.stem]}")


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.File | None:
    """Do not import what names parts of another version."""
    if REASONS.get(module_path.stem) is None:
        return None
    return NotHere.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run them with other versions, too."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.core)


@pytest.fixture
def take_out() -> Iterator[TakeOut]:
    """Return a function that reverts a patch until the test is over."""
    with taking_out() as take_out:
        yield take_out
