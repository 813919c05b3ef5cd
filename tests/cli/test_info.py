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
from vllm_ascend_spec.cli import elsewhere, info
from vllm_ascend_spec.cli.elsewhere import call_elsewhere
from vllm_ascend_spec.compat import registry
from vllm_ascend_spec.ops import cpu_library
from vllm_ascend_spec.ops.registry import Op

ROOT = Path(__file__).parents[2]
# Where each part of the report gets what it tells.
SOURCES: dict[str, tuple[object, str]] = {
    "platform": (info.select, "select_platform"),
    "device": (info.select, "find_device"),
    "vllm_supported": (info.versions, "installed_vllm"),
    "op_backends": (elsewhere.subprocess, "run"),
    "mends": (registry, "report"),
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
        "os.rmdir(sys.argv[1])); sys.argv[1:] = ['info']; "
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


def test_mends_are_those_of_the_device() -> None:
    assert "cpu_expand_kernel" in info.mends("cpu")
    assert "cpu_expand_kernel" not in info.mends("npu")
    assert info.mends("npu")["npu_logprobs_mode"].startswith(("active: ", "not needed: "))
