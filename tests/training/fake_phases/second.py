"""The second phase."""

from __future__ import annotations

from functools import partial

from tests.training import fake_phases

NAME = "the second"
is_done = partial(fake_phases.is_done, "second")
run = partial(fake_phases.run, "second")
