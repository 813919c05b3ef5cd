"""A script may start an engine at its top level; where that is not seen, one line says so."""

from __future__ import annotations

import multiprocessing.spawn
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from vllm.utils import system_utils

from tests.patches.cases import TakeOut
from vllm_ascend_spec.errors import UnguardedScriptError
from vllm_ascend_spec.patches.upstream import unguarded_script as patch

ROOT = Path(__file__).parents[2]
METHOD = "VLLM_WORKER_MULTIPROC_METHOD"
# What the hook does, without vLLM: seconds faster, and the spawned process is a real one.
SCRIPT = """
import multiprocessing
import sys

from vllm_ascend_spec.patches.upstream import unguarded_script


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
def test_stock_fault_and_patch(monkeypatch: pytest.MonkeyPatch, take_out: TakeOut) -> None:
    monkeypatch.setenv(METHOD, "spawn")
    take_out(patch)
    process = system_utils.get_mp_context().Process(target=print)
    with pytest.raises(RuntimeError, match="bootstrapping phase") as stock:
        process.start()
    assert len(str(stock.value).splitlines()) > 10
    patch.apply()
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
    take_out(patch)
    patch.apply()
    monkeypatch.setenv(METHOD, "fork")
    assert system_utils.get_mp_context().get_start_method() == "fork"


def test_a_script_that_is_not_imported_may_spawn(
    monkeypatch: pytest.MonkeyPatch, take_out: TakeOut
) -> None:
    take_out(patch)
    patch.apply()
    monkeypatch.setenv(METHOD, "spawn")
    assert system_utils.get_mp_context().get_start_method() == "spawn"


def test_applying_twice_and_taking_it_out(take_out: TakeOut) -> None:
    take_out(patch)
    stock = system_utils._maybe_force_spawn
    patch.apply()
    once = system_utils._maybe_force_spawn
    patch.apply()
    assert system_utils._maybe_force_spawn is once
    assert once is not stock
    told = multiprocessing.spawn.get_preparation_data
    patch.revert()
    assert system_utils._maybe_force_spawn is stock
    assert multiprocessing.spawn.get_preparation_data is not told


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
    assert patch.place(sys._getframe()) == ""
    assert patch.place(None) == ""


# A process of vLLM's name, started at the top level of a script.
AT_TOP_LEVEL = """
import multiprocessing.spawn
import sys

from vllm_ascend_spec.patches.upstream.unguarded_script import telling_less

print("script runs", flush=True)
if {patched}:
    spawn = multiprocessing.spawn
    spawn.get_preparation_data = telling_less(spawn.get_preparation_data)


def main():
    process = multiprocessing.get_context("spawn").Process(
        target=print, args=("child runs",), name="{name}"
    )
    process.start()
    process.join()
    return process.exitcode


{call}
"""


def run_at_top_level(
    tmp_path: Path, call: str, name: str = "EngineCore", *, patched: bool = True
) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "example.py"
    script.write_text(AT_TOP_LEVEL.format(call=call, name=name, patched=patched))
    words = [sys.executable, str(script)]
    return subprocess.run(
        words, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", ["EngineCore", "EngineCore_DP1", "VllmWorker-3"])
def test_a_call_at_the_top_level_works(tmp_path: Path, name: str) -> None:
    result = run_at_top_level(tmp_path, "sys.exit(main())", name)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["script runs", "child runs"]


def test_without_the_patch_it_fails(tmp_path: Path) -> None:
    result = run_at_top_level(tmp_path, "sys.exit(main())", patched=False)
    assert result.returncode != 0
    assert "bootstrapping phase" in result.stderr


def test_a_guarded_script_is_imported_as_ever(tmp_path: Path) -> None:
    result = run_at_top_level(tmp_path, 'if "__main__" == __name__:\n    sys.exit(main())')
    assert result.returncode == 0
    assert result.stdout.splitlines() == ["script runs", "script runs", "child runs"]


def test_a_persons_own_processes_are_told_of_the_script(tmp_path: Path) -> None:
    result = run_at_top_level(tmp_path, "sys.exit(main())", "Process-1")
    assert result.returncode != 0
    assert "bootstrapping phase" in result.stderr
