"""A KV connector hands the draft's layers over, too, on the simulated NPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.ascend.matrix import Case
from tests.ascend.processes import tokens_of
from tests.engines import assert_same


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("method", "loop", "mode"),
    [
        ("eagle", "ours", "eager"),
        ("eagle", "stock", "eager"),
        ("eagle", "ours", "default"),
        ("draft_model", "ours", "eager"),
    ],
)
def test_an_engine_goes_on_from_what_another_one_saved(
    method: str, loop: str, mode: str, run_engine: Any, tmp_path: Path
) -> None:
    def run(role: str) -> Any:
        engine = {
            "enable_prefix_caching": False,
            # Whole blocks are handed over, and the prompts have about a hundred tokens.
            "block_size": 32,
            "additional_config": {"ascend_spec": {"draft_loop": loop}},
            "kv_transfer_config": {
                "kv_connector": "LayerConnector",
                "kv_connector_module_path": "tests.ascend.layer_connector",
                "kv_role": role,
                "kv_connector_extra_config": {"shared_storage_path": str(tmp_path)},
            },
        }
        return run_engine(Case(method=method, mode=mode, engine=engine))

    expected = tokens_of(run_engine(Case(method=None, mode="eager")), "greedy")
    first = run("kv_producer")
    assert_same(tokens_of(first, "greedy"), expected)
    assert len({path.name for path in tmp_path.rglob("*.safetensors")}) == 13
    second = run("kv_consumer")
    assert_same(tokens_of(second, "greedy"), expected)
    assert second["counters_of"] == first["counters_of"]
