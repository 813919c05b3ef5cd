"""A line on a terminal while a command is silent, and nowhere else."""

from __future__ import annotations

import io
import time

import pytest

from vllm_ascend_spec.cli import patience
from vllm_ascend_spec.cli.main import main
from vllm_ascend_spec.cli.patience import ERASE, waiting


class Screen(io.StringIO):
    """Stands for standard error."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def shown(
    monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, silence_s: float, takes_s: float
) -> str:
    """Return what is written while something takes a time."""
    screen = Screen(is_terminal)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(patience, "SILENCE_S", silence_s)
    with waiting("check: asking vLLM"):
        deadline = time.monotonic() + takes_s
        while time.monotonic() < deadline and not screen.getvalue():
            time.sleep(0.01)
    return screen.getvalue()


def test_what_takes_long_is_said_and_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    said = shown(monkeypatch, is_terminal=True, silence_s=0.01, takes_s=60)
    assert said == f"check: asking vLLM …{ERASE}"


def test_what_is_quick_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, is_terminal=True, silence_s=60, takes_s=0) == ""


def test_a_pipe_has_no_such_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, is_terminal=False, silence_s=0.01, takes_s=0.1) == ""


def test_the_line_is_wiped_where_it_ends_badly(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(is_terminal=True)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(patience, "SILENCE_S", 0.0)
    with pytest.raises(ValueError, match="no"), waiting("check"):  # noqa: PT012
        while not screen.getvalue():
            time.sleep(0.01)
        raise ValueError("no")
    assert screen.getvalue() == f"check …{ERASE}"


@pytest.mark.parametrize("words", [["info"], ["check", "org/target"]])
def test_the_commands_that_load_much_say_so(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    screen = Screen(is_terminal=True)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(patience, "SILENCE_S", 0.0)
    module = f"vllm_ascend_spec.cli.{words[0]}"
    slow = "report" if words[0] == "info" else "find"
    monkeypatch.setattr(f"{module}.{slow}", Slow(screen))
    with pytest.raises(SaidError):
        main(words)
    assert screen.getvalue().startswith(f"vllm-ascend-spec {words[0]}: ")


class SaidError(Exception):
    """Something has been said."""


class Slow:
    """Ends with an error once something has been said."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def __call__(self, *_: object, **__: object) -> None:
        while not self._screen.getvalue():
            time.sleep(0.01)
        raise SaidError
