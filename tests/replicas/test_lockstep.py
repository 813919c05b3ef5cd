"""The comparison of two copies finds the step in which one exchanges less."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.replicas.collectives import IDLE, PASS, SECOND_HALF
from tests.replicas.lockstep import beside_idle, out_of_step, read_steps

# A pass of the target and two drafts, and the same with one draft.
WHOLE, SHORT = Counter(all_reduce=3), Counter(all_reduce=2)


def test_halves_of_a_pass_are_one_step(tmp_path: Path) -> None:
    notes = [
        (PASS, {"all_reduce": 1}),
        (SECOND_HALF, {"all_reduce": 2}),
        (PASS, {}),
        (IDLE, {"all_reduce": 3}),
    ]
    (tmp_path / "0.json").write_text(json.dumps(notes))
    assert read_steps(tmp_path, 0) == [(PASS, WHOLE), (IDLE, WHOLE)]


def test_a_draft_fewer_is_found() -> None:
    busy = [(PASS, WHOLE)] * 3
    assert not out_of_step(busy, [(IDLE, WHOLE)] * 4)
    assert list(out_of_step(busy, [(IDLE, WHOLE), (IDLE, SHORT), (IDLE, WHOLE)])) == [1]


def test_steps_beside_an_idle_copy() -> None:
    one = [(PASS, WHOLE), (PASS, SHORT), (IDLE, WHOLE)]
    other = [(IDLE, WHOLE), (PASS, SHORT), (PASS, WHOLE)]
    assert beside_idle(one, other) == [WHOLE]
