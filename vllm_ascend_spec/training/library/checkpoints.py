"""The trainer's checkpoints: written whole, mended after a kill, few of them kept.

A folder is named after the step; the library names it after the epoch, and goes on from the
highest number. ``training_state.json`` is written last, so a folder that has it is whole; it also
names the best checkpoint so far.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from vllm_ascend_spec.training.atomic import TEMPORARY, sync_folder, write_whole

STATE, BEST, OLD = "training_state.json", "checkpoint_best", ".old"
KEPT = 2


def write_checkpoint(folder: Path, write: Callable[[str], Any], state: Mapping[str, Any]) -> None:
    """Write a checkpoint, give it its name when it is whole, and delete old ones.

    Args:
        folder: of all checkpoints.
        write: writes its files to the folder of the name that it gets.
        state: what ``training_state.json`` holds; ``global_step`` is its name, and ``best_step``
            names the best one.
    """
    path = folder / str(state["global_step"])
    temporary, old = path.with_name(path.name + TEMPORARY), path.with_name(path.name + OLD)
    shutil.rmtree(temporary, ignore_errors=True)
    write(temporary.name)
    for each in temporary.iterdir():
        with each.open("rb") as file:
            os.fsync(file.fileno())
    text = json.dumps(state)
    write_whole(temporary / STATE, lambda file: file.write_text(text))
    if path.exists():
        path.rename(old)
    temporary.rename(path)
    sync_folder(folder)
    shutil.rmtree(old, ignore_errors=True)
    _point_to_best(folder, state["best_step"])
    _prune(folder)


def mend(folder: Path) -> dict[str, Any] | None:
    """Delete what a killed process left torn.

    Returns:
        The state of the last checkpoint, or None if there is none.
    """
    if not folder.is_dir():
        return None
    for temporary in folder.glob(f"*{TEMPORARY}"):
        path = temporary.with_name(temporary.name.removesuffix(TEMPORARY))
        if temporary.is_dir() and (temporary / STATE).is_file():
            # It was whole, and the process was killed before it got its name.
            shutil.rmtree(path, ignore_errors=True)
            temporary.rename(path)
    for torn in _torn(folder):
        shutil.rmtree(torn) if torn.is_dir() else torn.unlink()
    whole = _steps(folder)
    if not whole:
        (folder / BEST).unlink(missing_ok=True)
        return None
    state: dict[str, Any] = json.loads((folder / str(whole[-1]) / STATE).read_text())
    _point_to_best(folder, state["best_step"])
    _prune(folder)
    return state


def best_or_last(folder: Path) -> Path:
    """Return the checkpoint that became the head: the best, or the last if none was measured."""
    best = folder / BEST
    return best.resolve() if best.is_symlink() else folder / str(_steps(folder)[-1])


def _torn(folder: Path) -> Iterator[Path]:
    for each in list(folder.iterdir()):
        unfinished = each.is_dir() and each.name.isdigit() and not (each / STATE).is_file()
        if unfinished or each.name.endswith((TEMPORARY, OLD)):
            yield each


def _steps(folder: Path) -> list[int]:
    """Return the names of the whole checkpoints."""
    found = (each.parent.name for each in folder.glob(f"*/{STATE}"))
    return sorted(int(name) for name in found if name.isdigit())


def _point_to_best(folder: Path, step: int | None) -> None:
    link, temporary = folder / BEST, folder / (BEST + TEMPORARY)
    if step is None:
        link.unlink(missing_ok=True)
        return
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(str(step), target_is_directory=True)
    temporary.replace(link)


def _prune(folder: Path) -> None:
    """Keep the last ones and the best."""
    kept = {folder / str(step) for step in _steps(folder)[-KEPT:]}
    if (folder / BEST).is_symlink():
        kept.add((folder / BEST).resolve())
    kept = {each.resolve() for each in kept}
    for each in folder.glob("[0-9]*"):
        if each.resolve() not in kept:
            shutil.rmtree(each)
