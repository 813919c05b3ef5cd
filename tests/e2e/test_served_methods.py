"""Every method behind ``vllm serve``: an engine in a process of its own answers as it does here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.eagle3 import write_variant
from tests.engines import ENGINE, token_ids
from tests.marks import unless
from tests.zoo import EVERY, LEAST, target_of
from vllm_ascend_spec.bench.client import ClientLoad, run_load
from vllm_ascend_spec.bench.server import Server
from vllm_ascend_spec.metrics.acceptance import from_prometheus
from vllm_ascend_spec.upstream import limits

# How an engine is started is one path for all methods, which test_server.py takes with eagle.
pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
ARGUMENTS = (
    *("--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "8", "--enforce-eager"),
    *("--kv-cache-memory-bytes", str(ENGINE["kv_cache_memory_bytes"])),
)
NUM_PROMPTS, MAX_TOKENS = 8, 48


@pytest.fixture(scope="module")
def expected(expect: Any, prompts: list[str]) -> list[tuple[int, ...]]:
    answers = expect(prompts[:NUM_PROMPTS], max_tokens=MAX_TOKENS)
    return [tuple(tokens) for tokens in token_ids(answers)]


def assert_served(
    model: str,
    spec: dict[str, Any] | None,
    prompts: list[str],
    expected: list[tuple[int, ...]],
    least: float,
) -> None:
    """Serve a model and compare the answers."""
    environment = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "PYTHONPATH": str(ROOT)}
    with Server(model, spec, arguments=ARGUMENTS, environment=environment) as server:
        served = run_load(server.url, model, ClientLoad(prompts[:NUM_PROMPTS], MAX_TOKENS))
        counted = from_prometheus(server.metrics())
    assert [answer.token_ids for answer in served.answers] == expected
    assert counted.tokens_per_step is not None
    assert counted.tokens_per_step > least


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(name, marks=unless(limits.WITHOUT_METHODS.get((spec["method"], "vllm"))))
        for name, spec in EVERY.items()
    ],
)
def test_every_method_is_served(
    method: str, prompts: list[str], expected: list[tuple[int, ...]]
) -> None:
    spec = EVERY[method]
    assert_served(target_of(spec), spec, prompts, expected, min(1.5, LEAST.get(method, 1.5)))


def test_a_head_of_the_speculators_library_is_served_as_the_model(
    prompts: list[str], expected: list[tuple[int, ...]], tmp_path: Path
) -> None:
    """Without ``--speculative-config``: the folder says target, method and number of drafts."""
    folder = write_variant("speculators", tmp_path / "head")
    assert_served(str(folder), None, prompts, expected, 1.5)
