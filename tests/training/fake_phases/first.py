"""The first phase."""

from __future__ import annotations

from functools import partial

from tests.training import fake_phases

NAME = "the first"
is_done = partial(fake_phases.is_done, "first")
run = partial(fake_phases.run, "first")
