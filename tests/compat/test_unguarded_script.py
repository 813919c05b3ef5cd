"""A script that starts an engine while its own process imports it is told so in one line."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from vllm.utils import system_utils

from tests.compat.mends import TakeOut
from vllm_ascend_spec.compat import unguarded_script as mend
from vllm_ascend_spec.errors import UnguardedScriptError

ROOT = Path(__file__).parents[2]
METHOD = "VLLM_WORKER_MULTIPROC_METHOD"
# What the hook does, without vLLM: seconds faster, and the spawned process is a real one.
SCRIPT = """
import multiprocessing
import sys

from vllm_ascend_spec.compat import unguarded_script


def start():
    if unguarded_script.script_is_imported():
        unguarded_script.refuse(sys._getframe())


{call}
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=print, args=("child runs",))
    child.start()
    child.join()
    sys.exit(child.exitcode)
"""


@pytest.fixture
def importing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that this is a spawned process that imports its script."""
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


@pytest.mark.usefixtures("importing")
def test_stock_fault_and_mend(monkeypatch: pytest.MonkeyPatch, take_out: TakeOut) -> None:
    monkeypatch.setenv(METHOD, "spawn")
    take_out(mend)
    process = system_utils.get_mp_context().Process(target=print)
    with pytest.raises(RuntimeError, match="bootstrapping phase") as stock:
        process.start()
    assert len(str(stock.value).splitlines()) > 10
    mend.apply()
    with pytest.raises(UnguardedScriptError) as ours:
        system_utils.get_mp_context()
    assert 'if __name__ == "__main__":' in str(ours.value)
    assert len(str(ours.value).splitlines()) == 1
    # A script that catches Python's error catches this one.
    assert isinstance(ours.value, RuntimeError)


@pytest.mark.usefixtures("importing")
def test_fork_works_while_a_script_is_imported(
    monkeypatch: pytest.MonkeyPatch, take_out: TakeOut
) -> None:
    take_out(mend)
    mend.apply()
    monkeypatch.setenv(METHOD, "fork")
    assert system_utils.get_mp_context().get_start_method() == "fork"


def test_a_script_that_is_not_imported_may_spawn(
    monkeypatch: pytest.MonkeyPatch, take_out: TakeOut
) -> None:
    take_out(mend)
    mend.apply()
    monkeypatch.setenv(METHOD, "spawn")
    assert system_utils.get_mp_context().get_start_method() == "spawn"


def test_applying_twice_and_taking_it_out(take_out: TakeOut) -> None:
    take_out(mend)
    stock = system_utils._maybe_force_spawn
    mend.apply()
    once = system_utils._maybe_force_spawn
    mend.apply()
    assert system_utils._maybe_force_spawn is once
    assert once is not stock
    mend.revert()
    assert system_utils._maybe_force_spawn is stock


def run(tmp_path: Path, call: str, name: str = "example.py") -> subprocess.CompletedProcess[str]:
    script = tmp_path / name
    script.write_text(SCRIPT.format(call=textwrap.dedent(call)))
    words = [sys.executable, str(script)]
    return subprocess.run(
        words, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", ["example.py", f"{'long' * 60}.py"])
def test_the_line_that_is_printed(tmp_path: Path, name: str) -> None:
    result = run(tmp_path, "start()", name)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("vllm-ascend-spec: error: ")
    assert f"{name[-80:]}, line 13: LLM(...) runs again" in line
    assert len(line) <= 300
    assert "child runs" not in result.stdout


def test_the_line_is_that_of_the_scripts_top_level(tmp_path: Path) -> None:
    result = run(tmp_path, "def main():\n    start()\n\nmain()")
    assert "example.py, line 16: " in result.stderr


def test_a_script_that_catches_the_error_works(tmp_path: Path) -> None:
    result = run(tmp_path, "try:\n    start()\nexcept RuntimeError:\n    pass")
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, "child runs", "")


def test_other_errors_keep_their_traceback(tmp_path: Path) -> None:
    call = "try:\n    start()\nexcept RuntimeError:\n    raise KeyError('other') from None"
    result = run(tmp_path, call)
    assert result.returncode == 1
    assert "KeyError: 'other'" in result.stderr
    assert "Traceback" in result.stderr


def test_without_a_script_in_the_frames_no_place_is_named() -> None:
    assert mend.place(sys._getframe()) == ""
    assert mend.place(None) == ""
