"""An engine that was asked to stop is no failure; tests/e2e/test_server.py asks one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.engine import async_llm
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.core_client import AsyncMPClient
from vllm.v1.engine.exceptions import EngineDeadError

from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches.upstream import asked_end_log as patch


class Records(logging.Handler):
    """What was logged."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@pytest.fixture
def logged() -> Iterator[list[str]]:
    handler = Records()
    async_llm.logger.addHandler(handler)
    yield handler.texts
    async_llm.logger.removeHandler(handler)


def client(*, is_dead: bool) -> Any:
    """Return vLLM's client of an engine, without the engine."""
    made = object.__new__(AsyncMPClient)
    made.resources = SimpleNamespace(engine_dead=is_dead, engine_manager=None)
    made._finalizer = SimpleNamespace(detach=lambda: None)
    made._ensure_output_queue_task = lambda: None
    return made


def end(engine: Any) -> list[Exception]:
    """Stop an engine as vLLM does, and let its outputs' task run before it is cancelled.

    Returns:
        What waiting requests are told.
    """
    told: list[Exception] = []

    async def run() -> None:
        engine.outputs_queue = asyncio.Queue()
        front = SimpleNamespace(
            output_handler=None,
            engine_core=engine,
            output_processor=SimpleNamespace(propagate_error=told.append),
            log_stats=False,
            logger_manager=None,
            renderer=SimpleNamespace(mm_processor_cache=None),
        )
        AsyncLLM._run_output_handler(front)  # type: ignore[arg-type]
        await asyncio.sleep(0)
        engine.shutdown(timeout=30)
        engine.resources.engine_dead = True
        engine.outputs_queue.put_nowait(EngineDeadError())
        await front.output_handler

    asyncio.run(run())
    return told


def test_stock_fault_and_patch(take_out: TakeOut, logged: list[str]) -> None:
    take_out(patch)
    assert end(client(is_dead=False))
    assert logged == ["AsyncLLM output_handler failed."]
    logged.clear()
    patch.apply()
    (error,) = end(client(is_dead=False))
    assert isinstance(error, EngineDeadError)
    assert logged == []


def test_an_engine_that_dies_by_itself_is_logged(take_out: TakeOut, logged: list[str]) -> None:
    take_out(patch)
    patch.apply()
    assert end(client(is_dead=True))
    assert logged == ["AsyncLLM output_handler failed."]
