"""A target split over two machines, as docs/recipes/replicas.md has it; both are this one here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.docs.person import small_server
from tests.engines import ENGINE
from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.bench.client import ClientLoad, run_load
from vllm_ascend_spec.bench.server import free_port

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
NUM_PROMPTS = 6
TOKENS = 24
ENVIRONMENT = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
}


def test_two_machines_answer_as_one(prompts: list[str], expect: Any) -> None:
    arguments = (
        *("--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "4"),
        *("--enforce-eager", "--kv-cache-memory-bytes", str(ENGINE["kv_cache_memory_bytes"])),
        *("--tensor-parallel-size", "2", "--nnodes", "2"),
        *("--master-addr", "127.0.0.1", "--master-port", str(free_port())),
    )
    second = subprocess.Popen(
        [
            *(sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", TARGET, *arguments),
            *("--node-rank", "1", "--headless"),
            *("--speculative-config", json.dumps(SPECS["eagle3"])),
        ],
        env={**os.environ, **ENVIRONMENT},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        first = (*arguments, "--node-rank", "0")
        with small_server(TARGET, SPECS["eagle3"], first, **ENVIRONMENT) as server:
            load = ClientLoad(prompts[:NUM_PROMPTS], TOKENS, concurrency=4)
            served = run_load(server.url, TARGET, load)
    finally:
        second.terminate()
        second.wait(60)
    expected = expect(prompts[:NUM_PROMPTS], max_tokens=TOKENS)
    assert [a.token_ids for a in served.answers] == [tuple(o.token_ids) for o in expected]
