"""A copy does what the program would, in what it prints and in how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from tests.docs.person import COMPILES_ALL, SMALL, environment, small
from tests.warm.command import SOCKET
from tests.warm.copies import is_program
from tests.warm.programs import Programs

SHOW = """
import json, os, sys
print(json.dumps(["vllm" in sys.modules, sys.argv[1:], os.getcwd(), sys.path[0], __name__,
                  os.environ.get("VLLM_API_KEY"), os.environ.get("VLLM_LOGGING_LEVEL"),
                  sys.stdin.read()]))
sys.exit(7)
"""
WAIT = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"


@pytest.fixture(scope="module")
def variables() -> Iterator[dict[str, str]]:
    if not COMPILES_ALL:  # those of the documents are such ones
        yield environment(**small())
        return
    with closing(Programs(environment(**SMALL))) as programs:
        yield environment(**SMALL, **programs.variables)


def show(variables: dict[str, str], folder: Path, **more: str) -> list[object]:
    """Return what a script in a copy, or in a process of its own, says of itself."""
    (folder / "scripts").mkdir()
    (folder / "scripts" / "show.py").write_text(SHOW)
    words = ["python", "scripts/show.py", "a word"]
    given = {**variables, **more}
    done = subprocess.run(
        words, cwd=folder, env=given, input="read", capture_output=True, text=True, check=False
    )
    assert done.returncode == 7, done.stderr
    told: list[object] = json.loads(done.stdout)
    return told


def test_a_script_has_its_words_folder_variables_files_and_status(
    variables: dict[str, str], tmp_path: Path
) -> None:
    here = [["a word"], str(tmp_path), str(tmp_path / "scripts"), "__main__"]
    assert show(variables, tmp_path, VLLM_API_KEY="key") == [True, *here, "key", None, "read"]


def test_what_an_import_may_have_read_is_read_anew(
    variables: dict[str, str], tmp_path: Path
) -> None:
    told = show(variables, tmp_path, VLLM_LOGGING_LEVEL="ERROR")
    assert (told[0], told[6]) == (False, "ERROR")


def test_what_this_process_imports_meanwhile_changes_nothing(
    variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's compiler, OpenCV and vLLM set variables of this process."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    given = environment(**SMALL, **{name: variables[name] for name in ("PATH", SOCKET)})
    told = show(given, tmp_path)
    assert told[0] is True


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("vllm serve a-model", True),
        ("vllm bench serve", False),
        ("python a/script.py", True),
        ("python -m tests.benchmarks step", True),
        ("python -m vllm.entrypoints.openai.api_server --port 1", True),
        ("python -m vllm.entrypoints.cli.main", False),
        ("python -m vllm_ascend_spec.training.phases.run fit out", True),
        ("python -m vllm_ascend_spec.cli.main check", False),
        ("python", False),
    ],
)
def test_which_commands_are_copied(words: str, expected: bool) -> None:
    assert is_program(words.split()) is expected


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["TERM", "KILL"])
def test_a_copy_ends_with_its_program(
    number: int, variables: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "wait.py").write_text(WAIT)
    words = ["python", str(tmp_path / "wait.py")]
    with subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        copy = psutil.Process(int(program.stdout.readline()))
        assert copy.pid != program.pid
        os.kill(program.pid, number)
        assert program.wait(30) == -number
        ends = time.monotonic() + 30
        while copy.is_running() and copy.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < ends, "the copy goes on"
            time.sleep(0.05)
