"""``vllm-ascend-spec completion``: bash really completes; the others are read by their shells."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_ascend_spec.cli.completion import SHELLS
from vllm_ascend_spec.cli.main import COMMANDS, main
from vllm_ascend_spec.methods.registry import BUILT_IN as METHODS
from vllm_ascend_spec.training.methods import METHODS as TRAINED

# Completes each line of stdin, and prints what bash would offer.
ASK = """
eval "$(cat "$1")"
function="$(complete -p vllm-ascend-spec | sed 's/.*-F \\([^ ]*\\).*/\\1/')"
while IFS= read -r line; do
    read -ra COMP_WORDS <<< "$line"
    [[ "$line" == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )) COMPREPLY=()
    "$function"
    echo "${COMPREPLY[*]}"
done
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the script for each shell, in a file."""
    folder = tmp_path_factory.mktemp("completion")
    found = {}
    for shell in SHELLS:
        with pytest.MonkeyPatch.context() as patch, (folder / shell).open("w") as file:
            patch.setattr(sys, "stdout", file)
            assert main(["completion", shell]) == 0
        found[shell] = folder / shell
    return found


def completed(script: Path, *lines: str) -> list[list[str]]:
    """Return what bash offers at the end of each line."""
    done = subprocess.run(
        ["bash", "-c", ASK, "bash", str(script)],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stderr == ""
    return [line.split() for line in done.stdout.splitlines()]


def test_bash_completes(scripts: dict[str, Path]) -> None:
    p = "vllm-ascend-spec"
    asked = {
        f"{p} ": list(COMMANDS),
        f"{p} ch": ["check"],
        f"{p} check --dev": ["--device"],
        f"{p} check --device ": ["npu", "cuda", "cpu"],
        f"{p} check --spec-method ": list(METHODS),
        f"{p} serve --spec-method m": [name for name in METHODS if name.startswith("m")],
        f"{p} plan --se": ["--sequence-parallel"],
        f"{p} bench sw": ["sweep"],
        f"{p} completion ": list(SHELLS),
        f"{p} train --method ": list(TRAINED),
        f"{p} train --dt": ["--dtype"],
        f"{p} train --from exam": ["examples"],
        f"{p} train --config CHANGE": ["CHANGELOG.md"],
        f"{p} migrate CHANGE": ["CHANGELOG.md"],
        f"{p} bench serve --model exam": ["examples"],
    }
    assert dict(zip(asked, completed(scripts["bash"], *asked), strict=True)) == asked


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_shell_reads_it(shell: str, scripts: dict[str, Path]) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run(
        [program, "-n", str(scripts[shell])], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_its_values_are_in_the_script(
    shell: str, scripts: dict[str, Path]
) -> None:
    text = scripts[shell].read_text()
    for word in (*COMMANDS, *METHODS, "sequence-parallel", "speculative-config", "bfloat16"):
        assert word in text


def test_without_the_package_that_writes_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "pip install 'vllm-ascend-spec[completion]'" in line


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["completion", "ksh"])
    assert end.value.code == 2
    assert "choose from" in capsys.readouterr().err
