"""The server's process is looked after: a start that fails says why, a stop is final."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from vllm_ascend_spec.bench import server


def script(tmp_path: Path, text: str) -> str:
    path = tmp_path / "vllm"
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return str(path)


def test_a_start_that_fails_ends_with_the_log(tmp_path: Path, monkeypatch) -> None:
    executable = script(tmp_path, "import sys\nsys.exit('no such model')")
    monkeypatch.setattr(server, "vllm_program", lambda: executable)
    with pytest.raises(server.ServerError, match="no such model"), server.Server("m"):
        pass


def test_a_start_that_hangs_is_ended(tmp_path: Path, monkeypatch) -> None:
    executable = script(tmp_path, "import time\nprint('loading', flush=True)\ntime.sleep(600)")
    monkeypatch.setattr(server, "vllm_program", lambda: executable)
    monkeypatch.setattr(server, "START_TIMEOUT_S", 2.0)
    waited: list[float] = []
    candidate = server.Server("m", on_wait=waited.append)
    with pytest.raises(server.ServerError, match="not ready"), candidate:
        pass
    assert waited
    assert candidate._process is None


def test_free_port_is_free() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", server.free_port()))


def test_the_command_is_vllm_serve() -> None:
    command = server.Server("m", {"method": "eagle"}, arguments=["--seed", "0"]).command
    assert command[1:3] == ["serve", "m"]
    assert command[-2:] == ["--speculative-config", '{"method": "eagle"}']


def test_sigterm_unwinds(monkeypatch) -> None:
    handlers = {}
    monkeypatch.setattr(server.signal, "signal", handlers.__setitem__)
    server.stop_servers_on_sigterm()
    with pytest.raises(SystemExit) as end:
        handlers[server.signal.SIGTERM](15, None)
    assert end.value.code == 143
