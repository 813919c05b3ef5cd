"""Servers that end: their engines are killed, or they are asked to while they answer."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import psutil
import pytest

from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.bench.server import Server
from vllm_ascend_spec.versions import vllm_program

# Seconds from the engine's end to the server's.
MOST_SECONDS = 10.0
DEAD = "The engine has died; the server ends with status 1"
ARGUMENTS = ("--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "8")
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
OURS = [vllm_program(), "serve", TARGET]


def new_server(launcher: list[str], *arguments: str) -> Server:
    return Server(
        TARGET,
        SPECS["eagle"],
        arguments=(*ARGUMENTS, "--enforce-eager", *arguments),
        environment=ENVIRONMENT,
        launcher=launcher,
    )


@contextmanager
def long_answer(server: Server) -> Iterator[Iterator[Any]]:
    """Start an answer, wait for its first chunk, and yield the others."""
    with (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="EMPTY", max_retries=0) as client,
        client.completions.create(
            model=TARGET,
            prompt="def f(",
            stream=True,
            max_tokens=400,
            temperature=0,
            extra_body={"ignore_eos": True},
        ) as answer,
    ):
        chunks = iter(answer)
        next(chunks)
        yield chunks


def kill_engine(server: Server) -> None:
    children = psutil.Process(server.pid).children()
    (engine,) = (child for child in children if "EngineCore" in " ".join(child.cmdline()))
    engine.kill()


def wait(server: Server) -> tuple[int, float]:
    """Return a server's status, and the seconds until it was there."""
    started = time.monotonic()
    assert server._process is not None
    try:
        status = server._process.wait(60)
    except subprocess.TimeoutExpired:
        pytest.fail(f"it has not ended:\n{server.log_tail()}")
    return status, time.monotonic() - started


def end_by_a_kill(server: Server) -> tuple[int, str]:
    """Kill a server's engine while it answers; return the server's status and its log."""
    with long_answer(server) as chunks:
        kill_engine(server)
        with pytest.raises(openai.APIError):
            list(chunks)
    status, seconds = wait(server)
    assert seconds < MOST_SECONDS
    return status, server.log_text()
