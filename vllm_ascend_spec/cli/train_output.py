"""The output folder of ``train``: new, or begun by a start that this one can go on from."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vllm_ascend_spec.cli.train_head import FROM, MODEL
from vllm_ascend_spec.cli.train_options import PROMPTS, flag_of
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training import output, used_by
from vllm_ascend_spec.training.atomic import TEMPORARY
from vllm_ascend_spec.training.chosen import read_chosen
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.phases.run import PHASES
from vllm_ascend_spec.training.settings import Settings

# Names of settings whose option is called otherwise.
OPTIONS = {
    "library": "--",
    "prompts_hash": f"{PROMPTS} whose hash is",
    "target_hash": f"{MODEL} whose hash is",
    "begin_hash": f"{FROM} whose hash is",
}


def chosen_of(folder: Path, found: set[str]) -> set[str]:
    """Return the ids of the prompts to use: those found, or in a begun folder those it began with.

    Args:
        folder: of the output.
        found: ids of all prompts that there are now.

    Raises:
        ConfigError: some of those that answers were given to are not there any more.
    """
    place = Output(folder)
    chosen = read_chosen(place)
    if chosen is None or used_by.costly(place, used_by.ANSWERS) is None:
        return found
    if lost := len(chosen - found):
        problem = (
            f"was begun with {len(chosen):,} prompts, and {lost:,} of them are not in {PROMPTS}; "
            "valid: all of them and any others, or a new folder"
        )
        raise ConfigError(output.OPTION, str(folder), problem)
    return chosen


def check_output(settings: Settings) -> list[tuple[str, Any, Any, str]]:
    """Refuse a folder that holds something else, or ours with settings that cannot change any more.

    Returns:
        The settings that have changed, as :func:`~vllm_ascend_spec.training.used_by.changed` does.

    Raises:
        ConfigError: naming the first setting that cannot change.
    """
    place = Output(settings.output)
    shown = str(settings.output)
    if settings.output.exists() and not settings.output.is_dir():
        raise ConfigError(output.OPTION, shown, "is a file; valid: a new folder")
    if not place.settings.exists():
        ours = (place.lock, place.settings, place.prompts)
        names = {name for path in ours for name in (path.name, f"{path.name}{TEMPORARY}")}
        found = settings.output.iterdir() if settings.output.is_dir() else ()
        if any(path.name not in names for path in found):
            problem = "holds something else; valid: a new or empty folder, or one of train's own"
            raise ConfigError(output.OPTION, shown, problem)
        return []
    try:
        earlier = Settings.load(place.settings)
    except (ValueError, KeyError, TypeError):
        problem = f"{place.settings.name} cannot be read; valid: a new folder"
        raise ConfigError(output.OPTION, shown, problem) from None
    changes = list(used_by.changed(place, earlier, settings))
    for name, before, now, phase in changes:
        if (there := used_by.costly(place, phase)) is not None:
            can_remove = there == place.head and phase != used_by.ANSWERS
            valid = f"remove {there} first" if can_remove else "the same"
            problem = (
                f"was begun with {_option(name)} {_said(before)}, now {_said(now)}; "
                f"valid: a new folder, or {valid}"
            )
            raise ConfigError(output.OPTION, shown, problem)
    return changes


def begin_again(settings: Settings) -> Iterator[str]:
    """Remove what depends on a setting that has changed; yield a line that says so.

    The settings are saved after that: a start that is killed here is repeated by the next one.

    Raises:
        ConfigError: as :func:`check_output` does.
    """
    changes = check_output(settings)
    if not changes:
        return
    first = min((phase for *_, phase in changes), key=PHASES.index)
    left = used_by.left_from(Output(settings.output), first)
    for paths in left.values():
        for path in paths:
            _remove(path)
    if left:
        what = ", ".join(
            f"{_option(name)} was {_said(before)}, now {_said(now)}"
            for name, before, now, _ in changes
        )
        yield f"{what}: what depends on it is made again ({', '.join(reversed(left))})"


def _remove(path: Path) -> None:
    """Remove a file or folder so that a kill leaves all of it or nothing under its name."""
    aside = path.with_name(f"{path.name}{TEMPORARY}")
    shutil.rmtree(aside, ignore_errors=True)
    path.replace(aside)
    if aside.is_dir():
        shutil.rmtree(aside)
    else:
        aside.unlink()


def _option(name: str) -> str:
    return OPTIONS.get(name, flag_of(name))


def _said(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ",".join(map(str, value)) or "none"
    return "none" if value is None or value == "" else str(value)
