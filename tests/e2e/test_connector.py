"""A KV connector that works layer by layer hands the draft's layers over, too, whatever drafts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from vllm import LLM

from tests.engines import ENGINE, Generate, assert_same, token_ids
from tests.zoo import DEPTH, EVERY, target_of
from vllm_ascend_spec.metrics.acceptance import AcceptanceCounts, from_engine

OURS = (
    *("eagle", "eagle3", "mtp", "draft_model", "dflash", "dspark"),
    *("pard", "peagle", "hybrid", "ngram"),
)
BY_DAY = ("eagle", "ours")
LOOPS = [
    pytest.param(method, loop, marks=() if (method, loop) == BY_DAY else pytest.mark.nightly)
    for method in OURS
    for loop in ("ours", "stock")
    if loop == "ours" or method in ("eagle", "draft_model", "dflash")
]


@pytest.mark.parametrize(("method", "loop"), LOOPS)
def test_an_engine_goes_on_from_what_another_one_saved(
    method: str,
    loop: str,
    expect: Callable[..., list[Any]],
    generate: Generate,
    prompts: list[str],
    tmp_path: Path,
) -> None:
    def answered(role: str) -> tuple[list[list[int]], AcceptanceCounts, int]:
        """Return answers of a new engine, their acceptance, and how many tokens it was given."""
        # Whether drafts pay is a matter of time, and how many are made is compared.
        section = {"draft_length": "fixed"}
        section |= {} if method == "ngram" else {"draft_loop": loop}
        llm = LLM(
            **ENGINE | {"model": target_of(EVERY[method])},
            block_size=32,
            enable_prefix_caching=False,
            speculative_config=dict(EVERY[method]),
            additional_config={"ascend_spec": section},
            kv_transfer_config={
                "kv_connector": "ExampleConnector",
                "kv_role": role,
                "kv_connector_extra_config": {"shared_storage_path": str(tmp_path)},
            },
        )
        try:
            found = token_ids(generate(llm, prompts[:3], max_tokens=32))
            metrics = llm.get_metrics()
            hits = "vllm:external_prefix_cache_hits"
            loaded = sum(metric.value for metric in metrics if metric.name == hits)
            return found, from_engine(metrics), loaded
        finally:
            llm.llm_engine.engine_core.shutdown()

    expected = token_ids(expect(prompts[:3], max_tokens=32))
    first, saved, given = answered("kv_producer")
    assert_same(first, expected)
    assert given == 0
    layers = {path.name for path in tmp_path.rglob("*.safetensors")}
    assert len(layers) == DEPTH + {"dflash": 2, "dspark": 2, "pard": 2, "ngram": 0}.get(method, 1)
    second, again, given = answered("kv_consumer")
    assert_same(second, expected)
    assert given > 0
    # It drafts as well as the one that computed the prompts.
    assert again == saved
