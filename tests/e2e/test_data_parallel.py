"""Two replicas of a target behind one server answer as one, and both draft."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.docs.person import small_server
from tests.engines import ENGINE
from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.bench.client import ClientLoad, run_load
from vllm_ascend_spec.bench.server import Server

COPIES = 2
NUM_PROMPTS = 12
TOKENS = 32
ARGUMENTS = (
    *("--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "4", "--enforce-eager"),
    *("--kv-cache-memory-bytes", str(ENGINE["kv_cache_memory_bytes"])),
    *("--data-parallel-size", str(COPIES)),
)
ENVIRONMENT = {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with small_server(TARGET, SPECS["eagle"], ARGUMENTS, **ENVIRONMENT) as running:
        yield running


def by_copy(metrics: str, counter: str) -> dict[str, float]:
    """Return a counter of each copy that drafted."""
    found: defaultdict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name == f"{counter}_total":
                found[sample.labels["engine"]] += sample.value
    return found


def test_copies_answer_as_one_and_each_drafts(
    server: Server, prompts: list[str], expect: Any
) -> None:
    """vLLM makes replicas of a dense target independent engines: none waits for the other."""
    served = run_load(server.url, TARGET, ClientLoad(prompts[:NUM_PROMPTS], TOKENS, concurrency=8))
    expected = expect(prompts[:NUM_PROMPTS], max_tokens=TOKENS)
    assert [a.token_ids for a in served.answers] == [tuple(o.token_ids) for o in expected]
    accepted = by_copy(server.metrics(), "vllm:spec_decode_num_accepted_tokens")
    drafted = by_copy(server.metrics(), "vllm:spec_decode_num_draft_tokens")
    assert len(accepted) == COPIES
    for copy, count in accepted.items():
        assert 0.1 * drafted[copy] < count < drafted[copy]
