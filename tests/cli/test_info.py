"""``info`` reports whatever is broken."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.bench.test_provenance import ERRORS, Broken
from tests.ops.cpu.marks import requires_library
from vllm_ascend_spec.cli import elsewhere, info, info_text
from vllm_ascend_spec.cli.elsewhere import call_elsewhere
from vllm_ascend_spec.ops import cpu_library
from vllm_ascend_spec.ops.registry import Op
from vllm_ascend_spec.patches import registry

ROOT = Path(__file__).parents[2]
# Where each part of the report gets what it tells.
SOURCES: dict[str, tuple[object, str]] = {
    "platform": (info.select, "select_platform"),
    "device": (info.select, "find_device"),
    "vllm_supported": (info.versions, "installed_vllm"),
    "op_backends": (elsewhere.subprocess, "run"),
    "patches": (registry, "report"),
    "problems": (info.versions, "require_vllm"),
}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_fails_the_report_comes(
    name: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name != "op_backends":
        monkeypatch.setattr(info, "call_elsewhere", lambda *_: {})
    monkeypatch.setattr(*SOURCES[name], Broken(error))
    report = info.report()
    assert report["failed"][name].startswith(type(error).__name__)
    json.dumps(report)


@pytest.mark.parametrize("part", [(Op, "status"), (cpu_library, "library_problem")])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_a_backend_raises_is_told(
    part: tuple[object, str], error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*part, Broken(error))
    told = info.op_backends("cpu")
    assert isinstance(told, str)
    assert told.startswith(f"cannot be told: {type(error).__name__}")


def run_info(cwd: Path, **environment: str) -> dict[str, Any]:
    """Run the command in a process of its own."""
    code = (
        "import os, sys; os.path.isdir(sys.argv[1]) and (os.chdir(sys.argv[1]), "
        "os.rmdir(sys.argv[1])); sys.argv[1:] = ['info', '--json']; "
        "from vllm_ascend_spec.cli.main import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(cwd)],
        cwd=cwd.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@requires_library
def test_in_a_folder_that_is_gone_without_git_and_with_bytes_that_are_no_text(
    tmp_path: Path,
) -> None:
    """torch cannot even be imported in a folder that is gone."""
    (tmp_path / "gone").mkdir()
    nothing = {"PATH": str(tmp_path), "VLLM_PLUGINS": os.fsdecode(b"\xff")}
    report = run_info(tmp_path / "gone", **nothing)
    assert report["op_backends"]["verify_greedy"]["cpu"] == "ready"
    assert report["environment"]["VLLM_PLUGINS"] == "…"


@requires_library
def test_a_library_that_ends_the_process(tmp_path: Path) -> None:
    """As one that is damaged in a way that its checksum does not tell."""
    package = tmp_path / "vllm_ascend_spec"
    shutil.copytree(ROOT / package.name, package, ignore=shutil.ignore_patterns("__pycache__"))
    library = package / "ops" / cpu_library.LIBRARY.name
    library.with_name(library.name + ".sha256").unlink(missing_ok=True)
    content = library.read_bytes()
    # Code and data are gone, its length and the table of its sections are not.
    library.write_bytes(content[:4096] + bytes(len(content) - 8192) + content[-4096:])
    report = run_info(tmp_path / "nowhere", PYTHONPATH=str(tmp_path))
    assert report["versions"]["torch"]
    told = report["failed"].get("op_backends") or report["op_backends"]["verify_greedy"]["cpu"]
    assert "ended with status -" in told or "cannot be loaded" in told


def summary(**changes: Any) -> list[str]:
    """Return the lines for people, of a report in which all is well but for ``changes``."""
    states = {"cpu": "ready", "reference": "ready"}
    report = {
        "vllm-ascend-spec": "1.2.3",
        "python": "3.11.0",
        "versions": {"vllm-ascend-spec": "1.2.3", "vllm": "0.30.0"},
        "vllm_supported": True,
        "device": "cpu",
        "platform": "a.Platform",
        "note": None,
        "methods": ["eagle", "ngram"],
        "limits": [],
        "op_backends": {"greedy": states, "sample": states, "cpu_instruction_set": "avx2"},
        "patches": {"a": "active: x", "b": "not needed: y", "c": "active: z"},
        "problems": [],
        "failed": {},
    }
    return info_text.text({**report, **changes}).splitlines()


def test_a_summary_for_people() -> None:
    assert summary() == [
        "vllm-ascend-spec 1.2.3: ready",
        "",
        "installed     vllm 0.30.0, Python 3.11.0",
        "device        cpu",
        "platform      a.Platform",
        "methods       eagle, ngram",
        "op backends   greedy cpu, sample cpu (avx2)",
        "patches       2 active, 1 not needed",
        "",
        "All of it, for a bug report: vllm-ascend-spec info --json",
    ]


def test_what_a_version_cannot_do_has_a_line() -> None:
    lines = summary(limits=["vLLM 0.1, whose runner is slow", "vLLM 0.1, which knows no pages"])
    assert "limits        vLLM 0.1 cannot do all that is supported, see docs/versions.md" in lines


def test_what_is_wrong_is_said_once_with_its_remedy() -> None:
    slow = {"cpu": "not built; remedy: build it", "reference": "ready", "triton": "no Triton"}
    lines = summary(
        op_backends={"greedy": slow, "sample": slow, "cpu_instruction_set": "avx2"},
        problems=["torchvision is in the way: pip uninstall torchvision"],
    )
    assert lines[0].endswith(": ready, but see what is wrong below")
    assert "op backends   greedy reference, sample reference" in lines
    # What is no better than what is used is not wrong.
    assert lines[lines.index("wrong") + 1 : -2] == [
        "  torchvision is in the way: pip uninstall torchvision",
        "  backend cpu: not built; remedy: build it",
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"platform": None, "note": "no driver; remedy: install it"},
        {"vllm_supported": False, "problems": ["vLLM is not installed"]},
        {"vllm_supported": None, "failed": {"vllm_supported": "OSError: no disk"}},
    ],
)
def test_where_it_is_not_in_use_the_first_line_says_so(changes: dict[str, Any]) -> None:
    lines = summary(**changes)
    assert lines[0].endswith(": not in use here, see below")
    said = "\n".join(lines)
    assert changes.get("note", "vLLM") in said or "vllm_supported: OSError: no disk" in said


def test_whatever_is_broken_there_is_a_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    for source in SOURCES.values():
        monkeypatch.setattr(*source, Broken(OSError("broken")))
    lines = info_text.text(info.report()).splitlines()
    assert "not known" in lines
    assert "op backends   cannot be told" in lines


def test_a_result_from_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert call_elsewhere("os.path", "basename", "/a/b") == "b"
    with pytest.raises(RuntimeError, match=r"status 1: AttributeError: .*no_such"):
        call_elsewhere("os.path", "no_such")
    monkeypatch.setattr(elsewhere, "CODE", "import os; os._exit(7)")
    with pytest.raises(RuntimeError, match="status 7: no error is told"):
        call_elsewhere("os", "getpid")


def test_the_import_path_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(elsewhere, "sys", SimpleNamespace(path=["", "a", "/b"]))
    assert elsewhere.import_path() == [str(tmp_path), str(tmp_path / "a"), "/b"]


def test_patches_are_those_of_the_device() -> None:
    assert "cpu_expand_kernel" in info.patches("cpu")
    assert "cpu_expand_kernel" not in info.patches("npu")
    assert info.patches("npu")["npu_logprobs_mode"].startswith(("active: ", "not needed: "))
