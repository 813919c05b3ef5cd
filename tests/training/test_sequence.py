"""Phases run in order, each in its process; signals, failures and second starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.training import fake_train
from tests.training.fake_phases import ORDER, TOLD
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training import sequence
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.process import EXIT_ENDED
from vllm_ascend_spec.training.settings import Settings

ROOT = Path(__file__).parents[2]
LONGEST_S = 120.0
on_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="the parent's death is told on Linux only"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an output folder with settings."""
    settings = Settings(tmp_path, "eagle3", (tmp_path / "prompts.jsonl",), tmp_path)
    settings.save(Output(tmp_path).settings)
    return tmp_path


def tell(folder: Path, **what: str) -> None:
    (folder / TOLD).write_text(json.dumps(what))


def start(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", fake_train.__name__, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def finish(child: subprocess.Popen[str]) -> tuple[int, list[str], str]:
    out, err = child.communicate(timeout=LONGEST_S)
    return child.returncode, out.splitlines(), err


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LONGEST_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def stat_of(pid: int) -> list[str]:
    """Return what Linux tells of a process: its state, its parent, and more."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def is_alive(pid: int) -> bool:
    try:
        return stat_of(pid)[0] != "Z"
    except OSError:
        return False


def test_each_runs_once_and_a_second_start_skips_it(folder: Path) -> None:
    tell(folder, second="crash")
    status, out, err = finish(start(folder))
    assert status == 1
    assert out[:2] == ["[1/3] the first …", "first works"]
    assert out[2].startswith("[1/3] the first: done in ")
    assert out[3] == "[2/3] the second …"
    assert out[4].startswith("[2/3] the second: failed after ")
    assert out[4].endswith("(exit status 1; the lines above say why); " + sequence.AGAIN)
    assert err.splitlines()[-1] == "RuntimeError: out of luck"
    tell(folder)
    status, out, err = finish(start(folder))
    assert (status, err) == (0, "")
    assert out[0] == "[1/3] the first: done before"
    assert (folder / ORDER).read_text().split() == ["first", "second", "second", "third"]


def test_the_line_of_a_refusal_is_the_last_one_of_stderr(folder: Path) -> None:
    tell(folder, first="refuse")
    status, out, err = finish(start(folder))
    assert status == 3
    (line,) = err.splitlines()
    assert line.startswith("vllm-ascend-spec train: error: --output=")
    assert "the disk is full" in line
    assert len(out) == 2


def test_one_that_was_killed_is_told(folder: Path) -> None:
    tell(folder, first="die")
    status, out, _ = finish(start(folder))
    assert status == 128 + signal.SIGKILL
    assert "ended by SIGKILL; maybe the machine has too little memory" in out[-1]


@pytest.mark.parametrize("number", sequence.SIGNALS, ids=lambda number: number.name)
def test_a_signal_is_handed_on_once_and_waited_for(folder: Path, number: signal.Signals) -> None:
    tell(folder, second="wait")
    child = start(folder)
    wait_for((folder / "second.started").exists)
    child.send_signal(number)
    status, out, err = finish(child)
    assert status == 128 + number
    assert out[-1] == f"ended by {number.name}; {sequence.AGAIN}"
    assert err == ""
    assert (folder / "second.kept").read_text() == "kept\n"
    assert not (folder / "third.done").exists()


def test_a_second_signal_ends_a_phase_that_does_not_end(folder: Path) -> None:
    tell(folder, first="stay")
    child = start(folder)
    wait_for((folder / "first.started").exists)
    child.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert child.poll() is None
    child.send_signal(signal.SIGINT)
    status, _, _ = finish(child)
    assert status == 128 + signal.SIGINT


@on_linux
def test_a_phase_ends_with_a_command_that_is_killed(folder: Path) -> None:
    tell(folder, first="wait")
    child = start(folder)
    started = folder / "first.started"
    wait_for(lambda: started.exists() and started.read_text())
    child.kill()
    finish(child)
    wait_for(lambda: not is_alive(int(started.read_text())))
    assert (folder / "first.kept").read_text() == "kept\n"
    tell(folder)
    assert finish(start(folder))[0] == 0


@on_linux
def test_a_folder_is_held_as_long_as_anything_works_there(folder: Path) -> None:
    tell(folder, first="stick")
    child = start(folder)
    started = folder / "first.started"
    wait_for(lambda: started.exists() and started.read_text())
    child.kill()
    child.wait(LONGEST_S)
    orphan = int(started.read_text())
    try:
        with (
            pytest.raises(ConfigError, match="another train writes there"),
            sequence.owned(Output(folder)),
        ):
            raise AssertionError
        assert is_alive(orphan)
    finally:
        os.kill(orphan, signal.SIGKILL)
    finish(child)
    wait_for(lambda: not is_alive(orphan))
    with sequence.owned(Output(folder)):
        pass


def start_several(folder: Path, **what: str) -> tuple[subprocess.Popen[str], list[int]]:
    """Return the command and the processes that torchrun has started, with its own at the end."""
    settings = Settings(folder, "eagle3", (), folder, nproc_per_node=2)
    settings.save(Output(folder).settings)
    tell(folder, **what)
    child = start(folder)
    files = [folder / f"second.started{rank}" for rank in range(2)]
    wait_for(lambda: all(each.exists() and each.read_text() for each in files))
    pids = [int(each.read_text()) for each in files]
    return child, [*pids, int(stat_of(pids[0])[1])]


@on_linux
def test_torchrun_and_what_it_starts_end_with_a_command_that_is_killed(folder: Path) -> None:
    child, pids = start_several(folder, second="wait")
    child.kill()
    finish(child)
    wait_for(lambda: not any(map(is_alive, pids)))
    assert (folder / "second.kept").read_text() == "kept\nkept\n"
    tell(folder)
    status, out, _ = finish(start(folder))
    assert status == 0
    assert out[-1].startswith("[3/3] the third: done in ")


@on_linux
def test_a_second_signal_ends_what_torchrun_has_started(folder: Path) -> None:
    child, pids = start_several(folder, second="stick")
    child.send_signal(signal.SIGINT)
    time.sleep(1)
    assert all(map(is_alive, pids))
    child.send_signal(signal.SIGINT)
    assert finish(child)[0] == 128 + signal.SIGINT
    wait_for(lambda: not any(map(is_alive, pids)))


def test_a_line_of_one_of_several_devices_is_told_and_its_status_kept(folder: Path) -> None:
    Settings(folder, "eagle3", (), folder, nproc_per_node=2).save(Output(folder).settings)
    tell(folder, second="refuse")
    status, _, err = finish(start(folder))
    assert status == 3
    assert "the disk is full" in err
    assert "Traceback" not in err


def test_torchrun_whose_parent_is_gone_starts_nothing(folder: Path) -> None:
    words = [sys.executable, "-m", sequence.TORCHRUN, "1", "2", "tests.training.nothing"]
    assert subprocess.run(words, cwd=ROOT, check=False).returncode == EXIT_ENDED


def test_two_do_not_write_to_one_folder(folder: Path) -> None:
    with (
        sequence.owned(Output(folder)),
        pytest.raises(ConfigError, match="another train writes there"),
        sequence.owned(Output(folder)),
    ):
        raise AssertionError
    with sequence.owned(Output(folder)):
        pass


def test_only_the_phase_that_trains_has_a_process_for_each_device(tmp_path: Path) -> None:
    several = Settings(tmp_path, "eagle3", (), tmp_path, nproc_per_node=2)
    assert sequence.command("proof", several)[1:3] == ["-m", sequence.RUN]
    words = sequence.command("fit", several)
    assert words[1:3] == ["-m", sequence.TORCHRUN]
    assert words[-4:] == ["2", sequence.RUN, "fit", str(tmp_path)]
    assert sequence.TORCHRUN not in sequence.command("fit", Settings(tmp_path, "", (), tmp_path))


def test_signals_are_left_as_they_were() -> None:
    before = [signal.getsignal(number) for number in sequence.SIGNALS]
    with sequence.Relay().installed():
        os.kill(os.getpid(), signal.SIGINT)
    assert [signal.getsignal(number) for number in sequence.SIGNALS] == before
