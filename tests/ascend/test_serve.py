"""``vllm-ascend-spec serve``: a real server on the simulated NPU, its processes all its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ascend.environment import CPU, NPU, ROOT
from tests.ascend.matrix import ENGINE, GREEDY
from tests.ascend.processes import tokens_of
from tests.ascend.prompts import NUM_PROMPTS, prompts
from tests.engines import assert_same
from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.bench.client import ClientLoad, run_load
from vllm_ascend_spec.bench.server import Server
from vllm_ascend_spec.metrics.acceptance import from_prometheus

ARGUMENTS = (
    *("--dtype", ENGINE["dtype"], "--max-model-len", str(ENGINE["max_model_len"])),
    *("--max-num-seqs", str(ENGINE["max_num_seqs"]), "--max-num-batched-tokens", "256"),
    *("--kv-cache-memory-bytes", str(ENGINE["kv_cache_memory_bytes"]), "--enforce-eager"),
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Start a server by our command, with nothing about plugins in the environment."""
    environment = dict.fromkeys(("VLLM_PLUGINS", *CPU)) | NPU
    environment |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_LOGGING_LEVEL": "INFO"}
    if "TESTS_COMPILE_ALL" not in os.environ:
        # The engine is a copy of the server, which has imported as much; by night it starts anew,
        # as the command wants it.
        environment["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"
    server = Server(
        TARGET,
        SPECS["eagle"],
        arguments=ARGUMENTS,
        environment={**environment, "PYTHONPATH": str(ROOT)},
    )
    server.command[0] = str(Path(sys.executable).with_name("vllm-ascend-spec"))
    with server as running:
        yield running


def test_a_server_answers_as_a_cpu_without_speculation(server: Server, on_cpu: Any) -> None:
    assert "Platform plugin ascend_spec is activated" in server.log_text()
    before = from_prometheus(server.metrics())
    load = ClientLoad(prompts(), GREEDY["max_tokens"], concurrency=NUM_PROMPTS)
    served = [list(answer.token_ids) for answer in run_load(server.url, TARGET, load).answers]
    accepted = from_prometheus(server.metrics()) - before
    assert accepted.num_drafts > 0
    assert accepted.tokens_per_step is not None
    assert accepted.tokens_per_step > 1.5
    assert_same(served, tokens_of(on_cpu, "greedy"))
