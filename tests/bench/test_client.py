"""Figures of a load."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from vllm_ascend_spec.bench.client import ClientLoad, LoadResult, ServerAnswer, run_load


def test_throughput_and_time_per_token() -> None:
    answers = (ServerAnswer((1, 2, 3), "abc", 0.5, 1.5), ServerAnswer((4, 5), "de", 0.1, 0.3))
    result = LoadResult(answers, wall_s=2.0)
    assert result.num_tokens == 5
    assert result.tokens_per_s == 2.5
    # (1.0 s / 2 tokens + 0.2 s / 1 token) / 2 requests
    assert result.time_per_output_token_ms == pytest.approx(350.0)


def test_load_names_itself() -> None:
    assert ClientLoad(["a"], 8).name == "batch 1, greedy"
    assert ClientLoad(["a"], 8, temperature=0.8, concurrency=8).name == "batch 8, T=0.8"


class Completions(BaseHTTPRequestHandler):
    """Answers a request with one chunk and keeps the key it came with."""

    keys: list[str | None]
    CHUNK = '{"id": "1", "object": "text_completion", "choices": [{"index": 0, "text": "a"}]}'

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.keys.append(self.headers["Authorization"])
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(f"data: {self.CHUNK}\n\ndata: [DONE]\n\n".encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HTTPServer]:
    monkeypatch.setattr(Completions, "keys", [], raising=False)
    with HTTPServer(("127.0.0.1", 0), Completions) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.parametrize(("key", "sent"), [(None, "EMPTY"), ("", "EMPTY"), ("s3cret", "s3cret")])
def test_servers_that_ask_for_the_key_of_the_environment_get_it(
    key: str | None, sent: str, server: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    if key is not None:
        monkeypatch.setenv("VLLM_API_KEY", key)
    result = run_load(f"http://127.0.0.1:{server.server_port}", "m", ClientLoad(["x"], 1))
    assert [answer.text for answer in result.answers] == ["a"]
    assert Completions.keys == [f"Bearer {sent}"]
