"""A server after its engine was killed: it serves again, and Ctrl-C ends it."""

from __future__ import annotations

import signal

import openai
import psutil

from tests.e2e.test_server_ends import DEAD, OURS, end_by_a_kill, new_server, wait
from tests.zoo import TARGET
from vllm_ascend_spec.bench.server import Server


def answer_of(server: Server) -> str:
    asked = {"model": TARGET, "prompt": "def f(", "max_tokens": 16, "temperature": 0}
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="EMPTY", max_retries=0) as client:
        answer = client.completions.create(**asked)
    return answer.choices[0].text


def press_ctrl_c(server: Server) -> None:
    """Do what a terminal does: every process of the server gets the signal."""
    top = psutil.Process(server.pid)
    for process in (top, *top.children(recursive=True)):
        process.send_signal(signal.SIGINT)


def test_a_server_serves_again() -> None:
    """On the same port."""
    server = new_server(OURS)
    with server:
        before = answer_of(server)
        status, log = end_by_a_kill(server)
        assert status == 1
        assert DEAD in log
    with server:
        assert answer_of(server) == before
        already = len(server.log_text())
        press_ctrl_c(server)
        status, _ = wait(server)
    assert "Traceback" not in server.log_text()[already:]
    assert status == 0
