"""A record says where it comes from."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from vllm_ascend_spec import __version__
from vllm_ascend_spec.bench import privacy, provenance
from vllm_ascend_spec.bench.privacy import HIDDEN
from vllm_ascend_spec.bench.provenance import LONGEST_PROBLEM, Probes


def test_record_has_what_is_needed_to_repeat_it(monkeypatch) -> None:
    argv = ["/some/where/vllm-ascend-spec", "bench", "serve", "--rounds", "3"]
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    monkeypatch.setenv("UNRELATED", "secret")
    monkeypatch.setattr(provenance.metadata, "version", lambda name: __version__)
    record = provenance.collect()
    assert record["argv"] == ["vllm-ascend-spec", "bench", "serve", "--rounds", "3"]
    assert record["versions"]["vllm-ascend-spec"] == __version__
    assert record["environment"]["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert "UNRELATED" not in record["environment"]
    assert {"time", "git", "python", "machine"} <= record.keys()
    assert record["failed"] == {}
    json.dumps(record)


def test_no_path_of_the_machine_is_told(monkeypatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/opt/private/lib/libiomp5.so:/opt/private/b.so")
    assert provenance.collect()["environment"]["LD_PRELOAD"] == "libiomp5.so:b.so"
    monkeypatch.setattr(sys, "argv", ["/home/me/run", "--model", "/home/me/m", "/home/me/x"])
    assert provenance.collect()["argv"] == ["run", "--model", f"{HIDDEN}/m", HIDDEN]


class UnspeakableError(Exception):
    """An error that raises when it is written down."""

    def __str__(self) -> str:
        raise RuntimeError("again")


ERRORS = (
    OSError(2, "No such file", "/x"),
    RuntimeError("first\nsecond"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    KeyError(),
    RecursionError("deep"),
    MemoryError(),
    SystemExit(3),
    provenance.subprocess.TimeoutExpired("git", 5),
    AttributeError("module 'os' has no attribute 'getloadavg'"),
    ValueError("x" * 10_000),
    UnspeakableError(),
)
# Where each probe gets what it tells.
SOURCES: dict[str, tuple[object, str]] = {
    "argv": (privacy, "arguments"),
    "time": (provenance, "datetime"),
    "git": (provenance, "subprocess"),
    "python": (platform, "python_version"),
    "versions.torch": (metadata, "version"),
    "system": (platform, "platform"),
    "cpu": (provenance, "CPU_INFO"),
    "cpus": (os, "sched_getaffinity"),
    "load": (os, "getloadavg"),
    "environment": (privacy, "environment"),
}


class Broken:
    """Raises whatever is done with it."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self, *_: Any, **__: Any) -> None:
        raise self.error

    def __getattr__(self, name: str) -> None:
        raise self.error


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_a_probe_raises_the_record_comes(name: str, error: BaseException) -> None:
    whole = provenance.collect()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*SOURCES[name], Broken(error))
        record = provenance.collect()
    if name == "cpu" and isinstance(error, OSError):  # as on systems without /proc
        assert record["machine"]["cpu"] == platform.machine()
        return
    assert record.keys() == whole.keys()
    assert record["machine"].keys() == whole["machine"].keys()
    assert record["failed"][name].startswith(type(error).__name__)
    assert len(record["failed"][name]) <= LONGEST_PROBLEM
    assert "\n" not in record["failed"][name]
    json.dumps(record)


def test_versions_do_not_raise(monkeypatch) -> None:
    monkeypatch.setattr(provenance.metadata, "version", Broken(ValueError()))
    assert provenance.versions() == {}


def test_what_is_missing_on_other_systems(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(provenance, "CPU_INFO", tmp_path / "nowhere")
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.delattr(os, "getloadavg")
    machine = provenance.collect()["machine"]
    assert machine["cpu"] == platform.machine()
    assert machine["cpus"] == os.cpu_count()
    assert machine["load"] is None


def test_a_processor_without_a_model_name_and_bytes_that_are_no_text(monkeypatch, tmp_path) -> None:
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr(provenance, "CPU_INFO", info)
    info.write_bytes(b"processor : 0\nCPU part : 0xd01\n\xff\n")
    assert provenance.cpu_model() == platform.machine()
    info.write_bytes(b"model name : Kunpeng \xff\n")
    assert provenance.cpu_model() == "Kunpeng \N{REPLACEMENT CHARACTER}"


def test_an_empty_command_line(monkeypatch) -> None:
    for argv in ([], [""], ["-c"], ["\udcff"]):
        monkeypatch.setattr(sys, "argv", argv)
        record = provenance.collect()
        assert "argv" not in record["failed"]
        json.dumps(record)


def test_without_git(monkeypatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert provenance.collect()["git"] is None


@pytest.fixture
def fake_git(tmp_path: Path, monkeypatch) -> Callable[[str], None]:
    """Return a function that makes a script be git."""

    def install(script: str) -> None:
        path = tmp_path / "git"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return install


def is_checkout() -> bool:
    return (Path(provenance.__file__).parents[2] / ".git").exists()


@pytest.mark.skipif(not is_checkout(), reason="needs a checkout")
@pytest.mark.parametrize(
    ("script", "failed"),
    [
        ("exec sleep 60", "TimeoutExpired: Command "),
        ("printf '\\377\\n'", None),
        ("exit 128", None),
        ("kill -9 $$", None),
    ],
)
def test_a_git_that_does_not_do_its_job(
    fake_git: Callable[[str], None], monkeypatch, script: str, failed: str | None
) -> None:
    monkeypatch.setattr(provenance, "GIT_TIMEOUT_S", 0.5)
    fake_git(script)
    record = provenance.collect()
    assert record["git"] is None
    assert record["failed"].get("git", "").startswith(failed or "")
    assert ("git" in record["failed"]) is (failed is not None)


def test_damaged_metadata(monkeypatch, tmp_path) -> None:
    for name, content in {
        "triton": b"Name: triton\n",
        "numpy": b"\xff\xfe\x00",
        "transformers": b"Metadata-Version: 2.1\nName: transformers\nVersion: 9.9\n",
    }.items():
        folder = tmp_path / f"{name}-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_bytes(content)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    probes = Probes()
    assert provenance.versions(probes) == {"transformers": "9.9"}
    assert set(probes.failed) == {"versions.triton", "versions.numpy"}


def test_a_reason_has_no_secrets(monkeypatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "Tr0ub4dor")
    monkeypatch.setattr(provenance.platform, "platform", Broken(OSError("at Tr0ub4dor: no")))
    assert provenance.collect()["failed"] == {"system": f"OSError: at {HIDDEN}: no"}
