"""The server's process is looked after: a start that fails says why, a stop is final."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from vllm_ascend_spec.bench import server
from vllm_ascend_spec.cli.main import main


def script(tmp_path: Path, text: str) -> str:
    path = tmp_path / "vllm"
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return str(path)


def test_a_start_that_fails_ends_with_the_log(tmp_path: Path, monkeypatch) -> None:
    """The program is the one beside Python, as it is without a test."""
    script(tmp_path, "import sys\nsys.exit('no such model')")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(server.ServerError, match="no such model"), server.Server("m"):
        pass


def test_an_error_is_seen_above_what_vllm_says_after_it(tmp_path: Path, monkeypatch) -> None:
    """Its API server ends in 60 lines of its own after those of an engine."""
    text = "print('no memory')\nprint(60 * 'of the API server\\n')\nraise SystemExit(1)"
    monkeypatch.setattr(server, "vllm_program", lambda: script(tmp_path, text))
    with pytest.raises(server.ServerError, match="no memory"), server.Server("m"):
        pass


def test_a_server_that_wrote_nothing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(server, "vllm_program", lambda: script(tmp_path, "raise SystemExit(1)"))
    with pytest.raises(server.ServerError, match="wrote nothing"), server.Server("m"):
        pass


def test_a_start_that_hangs_is_ended(tmp_path: Path, monkeypatch) -> None:
    """A process that only wakes up now and then does not live."""
    text = "import time\nprint('loading', flush=True)\nwhile True: time.sleep(0.05)"
    monkeypatch.setattr(server, "vllm_program", lambda: script(tmp_path, text))
    candidate = server.Server("m", start_timeout_s=2.0)
    with pytest.raises(server.ServerError, match=r"not ready.*\n.*loading"), candidate:
        pass
    assert candidate._process is None


ANSWER = """
import http.server, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[-1])), Answer).serve_forever()
"""
WRITES = "for _ in range(12): print('still loading', flush=True); time.sleep(0.4)"
# A child of it, as vLLM's engines are.
COMPUTES = "subprocess.run([sys.executable, '-c', 'while time.process_time() < 2.5: pass'])"


@pytest.mark.parametrize("work", [WRITES, COMPUTES], ids=["writes", "computes"])
def test_a_start_that_lives_is_waited_for(work: str, tmp_path: Path, monkeypatch) -> None:
    """However long it takes: here longer than the limit."""
    text = "import subprocess, sys, time\n" + work.replace("'while", "'import time\\nwhile")
    monkeypatch.setattr(server, "vllm_program", lambda: script(tmp_path, f"{text}\n{ANSWER}"))
    with server.Server("m", start_timeout_s=1.5) as started:
        assert started.start_seconds > 2


@pytest.mark.parametrize("text", ["0", "-1", "nan", "soon"])
def test_a_limit_that_is_none(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "serve", "--start-timeout", text])
    assert f"argument --start-timeout: '{text}': valid: seconds, more than 0" in (
        capsys.readouterr().err
    )


def test_free_port_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as used, socket.socket() as probe:
        used.bind(("127.0.0.1", 0))
        taken = used.getsockname()[1]
        choices = iter([taken, server.free_port()])
        monkeypatch.setattr(
            server.secrets, "randbelow", lambda end: next(choices) - server.FIRST_PORT
        )
        port = server.free_port()
        assert port != taken
        probe.bind(("127.0.0.1", port))


def test_a_free_port_is_none_that_the_system_gives_to_others() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert {server.free_port() < first for _ in range(50)} == {True}


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
