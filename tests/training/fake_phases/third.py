"""The third phase."""

from __future__ import annotations

from functools import partial

from tests.training import fake_phases

NAME = "the third"
is_done = partial(fake_phases.is_done, "third")
run = partial(fake_phases.run, "third")
