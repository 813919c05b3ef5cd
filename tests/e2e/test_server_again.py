"""A server after its engine was killed: it serves again, and Ctrl-C ends it."""

from __future__ import annotations

import signal
import sys

import openai
import psutil
import pytest

from tests.e2e.server_ends import DEAD, OURS, end_by_a_kill, new_server, wait
from tests.zoo import TARGET
from vllm_ascend_spec.bench.server import Server

# Beside what vllm's command does, take out the patch.
STOCK = """\
import sys
from vllm_ascend_spec.patches.upstream import dead_engine_status
dead_engine_status.apply = lambda: None
from vllm.entrypoints.cli.main import main
main()
"""


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


@pytest.mark.nightly
def test_a_killed_engine_without_the_patch() -> None:
    """With it: above."""
    with new_server([sys.executable, "-c", STOCK, "serve", TARGET]) as server:
        status, log = end_by_a_kill(server)
    assert status == 0
    assert DEAD not in log
