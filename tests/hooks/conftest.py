"""Fixtures of the hooks' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.patches.cases import TakeOut, taking_out


@pytest.fixture
def take_out() -> Iterator[TakeOut]:
    """Return a function that reverts a hook or a patch until the test is over."""
    with taking_out() as take_out:
        yield take_out
