"""A server's status says that its engine has died; tests/e2e/test_server_again.py kills one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches.upstream import dead_engine_status as patch
from vllm_ascend_spec.upstream.api_server import entry


class Engine:
    """What the server knows of an engine."""

    def __init__(self, *, dies: bool) -> None:
        self.errored = dies

    def shutdown(self) -> None:
        """As it is asked to by a signal; an engine that has stopped looks like a dead one."""
        self.errored = True


async def closed() -> None:
    """What is awaited once the server has ended."""


def serve(engine: Engine | None, *, is_asked: bool = False) -> None:
    """Serve until the end, as vLLM does."""

    async def run() -> None:
        await (await entry.serve_http(SimpleNamespace(state=SimpleNamespace(**state))))  # type: ignore[arg-type, call-arg]

    state = {"engine_client": engine, "is_asked": is_asked}
    asyncio.run(run())


@pytest.fixture
def http_server(monkeypatch: pytest.MonkeyPatch, take_out: TakeOut) -> None:
    """vLLM's HTTP server without HTTP: it ends at once."""

    async def serve_http(app: Any) -> Any:
        if app.state.is_asked:
            app.state.engine_client.shutdown()
        return closed()

    take_out(patch)
    monkeypatch.setattr(entry, "serve_http", serve_http)


@pytest.mark.usefixtures("http_server")
def test_stock_fault_and_patch() -> None:
    serve(Engine(dies=True))
    patch.apply()
    with pytest.raises(SystemExit) as ended:
        serve(Engine(dies=True))
    assert ended.value.code == 1
    patch.revert()


@pytest.mark.usefixtures("http_server")
def test_a_server_that_is_asked_to_end_does() -> None:
    patch.apply()
    serve(Engine(dies=False))
    serve(Engine(dies=False), is_asked=True)
    serve(None)
    patch.revert()
