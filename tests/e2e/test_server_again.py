"""A server after its engine was killed: it serves again, and Ctrl-C ends it."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import openai
import psutil
import pytest

from tests.e2e.test_server_ends import ENVIRONMENT, OURS, kill_engine, new_server, wait
from tests.zoo import TARGET
from vllm_ascend_spec.bench.server import Server


def answer_of(server: Server) -> str:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="EMPTY", max_retries=0)
    answer = client.completions.create(model=TARGET, prompt="def f(", max_tokens=16, temperature=0)
    return answer.choices[0].text


def test_a_server_serves_again(tmp_path: Path) -> None:
    """On the same port, and without a cache: its folder is a file."""
    file = tmp_path / "file"
    file.touch()
    server = new_server(OURS)
    server.environment["VLLM_CACHE_ROOT"] = str(file)
    with server:
        before = answer_of(server)
        assert "Traceback" not in server.log_text()
        assert server.log_text().count("VLLM_CACHE_ROOT: ") == 1
        kill_engine(server)
        assert wait(server)[0] == 1
    with server:
        assert answer_of(server) == before
        already = len(server.log_text())
        psutil.Process(server.pid).send_signal(signal.SIGINT)
        status, _ = wait(server)
    assert "Traceback" not in server.log_text()[already:]
    assert status == 0
