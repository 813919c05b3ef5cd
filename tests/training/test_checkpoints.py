"""The trainer's checkpoints: what a kill leaves at any point is mended, and few are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vllm_ascend_spec.training.library.checkpoints import (
    BEST,
    STATE,
    best_or_last,
    mend,
    write_checkpoint,
)


def write(folder: Path, step: int, best: int | None = None, text: str = "weights") -> None:
    def fill(name: str) -> None:
        (folder / name).mkdir(parents=True)
        (folder / name / "model.safetensors").write_text(text)

    write_checkpoint(folder, fill, {"epoch": 0, "global_step": step, "best_step": best})


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_the_last_two_and_the_best_are_kept(tmp_path: Path) -> None:
    for step in range(6):
        write(tmp_path, step, best=min(step, 1))
    assert names(tmp_path) == ["1", "4", "5", BEST]
    assert best_or_last(tmp_path) == tmp_path / "1"
    assert mend(tmp_path) == {"epoch": 0, "global_step": 5, "best_step": 1}
    assert names(tmp_path) == ["1", "4", "5", BEST]


def test_a_checkpoint_of_the_same_step_takes_the_place_of_the_last(tmp_path: Path) -> None:
    write(tmp_path, 0, text="old")
    write(tmp_path, 0, text="new")
    assert (tmp_path / "0" / "model.safetensors").read_text() == "new"
    assert names(tmp_path) == ["0"]


class Killed(BaseException):
    """Ends a write where a signal would."""


CALLS = ("iterdir", "rename", "symlink_to", "replace", "unlink")


@pytest.mark.parametrize("call", range(12))
def test_a_kill_at_any_change_loses_no_more_than_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    write(tmp_path, 0, best=0)
    write(tmp_path, 1, best=0)
    left = [call]

    def killing(stock: Any) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return stock(*args, **kwargs)

        return called

    with monkeypatch.context() as here:
        for name in CALLS:
            here.setattr(Path, name, killing(getattr(Path, name)))
        try:
            write(tmp_path, 1, best=1, text="new")
            ended = True
        except Killed:
            ended = False
    state = mend(tmp_path)
    assert state is not None
    assert state["global_step"] == 1
    text = (tmp_path / "1" / "model.safetensors").read_text()
    # What is there is one or the other, with its own state.
    assert (text, state["best_step"]) in [("weights", 0), ("new", 1)]
    assert best_or_last(tmp_path) == tmp_path / str(state["best_step"])
    assert set(names(tmp_path)) <= {"0", "1", BEST}
    if ended:
        assert text == "new"


def test_a_torn_checkpoint_is_deleted(tmp_path: Path) -> None:
    write(tmp_path, 0)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.safetensors").write_text("half")
    (tmp_path / "2.tmp").mkdir()
    state = mend(tmp_path)
    assert state is not None
    assert state["global_step"] == 0
    assert names(tmp_path) == ["0"]


def test_there_may_be_none(tmp_path: Path) -> None:
    assert mend(tmp_path / "none") is None
    assert mend(tmp_path) is None
    (tmp_path / "0").mkdir()
    assert mend(tmp_path) is None
    assert names(tmp_path) == []
    write(tmp_path, 3)
    assert json.loads((tmp_path / "3" / STATE).read_text())["best_step"] is None
    assert best_or_last(tmp_path) == tmp_path / "3"
