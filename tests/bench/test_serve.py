"""The order of servers in ``bench serve``; what it measures is in tests/e2e/test_examples.py."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ascend_spec.bench import serve


def test_servers_start_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later one was up to 1.2 times as fast as the same one before it."""
    started: list[Any] = []

    class Noted:
        title = ""

        def __init__(self, model: str, spec: Any, **_: Any) -> None:
            self.spec = spec

        def __enter__(self) -> Noted:
            started.append(self.spec)
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(serve, "Server", Noted)
    plan = serve.ServeBenchConfig(model="m", speculative_config={"method": "ngram"}, loads=())
    for index in range(2):
        with serve._servers(plan, "eager", index) as servers:
            assert list(servers) == [serve.CANDIDATE, serve.NONE]
    spec = plan.speculative_config
    assert started == [spec, None, None, spec]
