"""Phases for tests of how phases are run: each writes down that it ran, and does as it is told."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training.atomic import append_line
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.settings import Settings

# Written by tests: what a phase does, by its name.
TOLD = "told.json"
ORDER = "order.txt"


def is_done(name: str, settings: Settings) -> bool:
    return (settings.output / f"{name}.done").exists()


def run(name: str, settings: Settings, show: Callable[[str], object]) -> None:
    append_line(settings.output / ORDER, name)
    told = json.loads((settings.output / TOLD).read_text())
    WHAT[told.get(name, "work")](name, settings, show)


def _work(name: str, settings: Settings, show: Callable[[str], object]) -> None:
    show(f"{name} works")
    (settings.output / f"{name}.done").touch()


def _wait(name: str, settings: Settings, show: Callable[[str], object]) -> None:
    try:
        started = settings.output / f"{name}.started{os.environ.get('LOCAL_RANK', '')}"
        started.write_text(str(os.getpid()))
        time.sleep(60)
    except KeyboardInterrupt:
        append_line(settings.output / f"{name}.kept", "kept")
        raise


def _stay(name: str, settings: Settings, show: Callable[[str], object]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _wait(name, settings, show)


def _stick(name: str, settings: Settings, show: Callable[[str], object]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _stay(name, settings, show)


def _refuse(name: str, settings: Settings, show: Callable[[str], object]) -> None:
    raise ConfigError("--output", str(Output(settings.output).states), "the disk is full")


def _crash(name: str, settings: Settings, show: Callable[[str], object]) -> None:
    raise RuntimeError("out of luck")


def _die(name: str, settings: Settings, show: Callable[[str], object]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


WHAT = {
    "work": _work,
    "wait": _wait,
    "stay": _stay,
    "stick": _stick,
    "refuse": _refuse,
    "crash": _crash,
    "die": _die,
}
