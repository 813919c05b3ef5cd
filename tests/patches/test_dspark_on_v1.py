"""DSpark heads run on model runner V1, with a slot of the KV cache for each row of a block."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.marks import unless
from tests.patches.cases import TakeOut
from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.patches import dspark_on_v1 as patch
from vllm_ascend_spec.upstream import limits

pytestmark = unless(limits.WITHOUT_METHODS.get(("dspark", "vllm")))


FEATURE = "dspark speculative decoding"


def configured(spec: dict[str, Any]) -> Any:
    """Return the configuration of an engine."""
    from vllm.engine.arg_utils import EngineArgs

    arguments: dict[str, Any] = {"model": TARGET, "dtype": "float32", "max_model_len": 256}
    return EngineArgs(**arguments, speculative_config=dict(spec)).create_engine_config()


def slots_of(config: Any) -> tuple[int, int]:
    """Return how many slots vLLM reserves of the cache, and of the draft's input."""
    return config.num_lookahead_tokens, config.speculative_config.max_num_new_slots_for_drafting


def test_stock_fault_and_patch(take_out: TakeOut) -> None:
    config = configured(SPECS["dspark"])
    assert config.speculative_config.method == "dspark"
    take_out(patch)
    with pytest.raises(ValueError, match=f"V1 does not support: {FEATURE}"):
        config._validate_v1_model_runner()
    patch.apply()
    config._validate_v1_model_runner()


@pytest.mark.parametrize(("first_yields", "rows"), [(True, 3), (False, 4)])
def test_each_row_of_a_block_has_a_slot(
    first_yields: bool, rows: int, tmp_path: Path, take_out: TakeOut
) -> None:
    folder = tmp_path / "dspark"
    shutil.copytree(SPECS["dspark"]["model"], folder)
    settings = json.loads((folder / "config.json").read_text())
    settings["sample_from_anchor"] = first_yields
    (folder / "config.json").write_text(json.dumps(settings))
    config = configured({**SPECS["dspark"], "model": str(folder)})
    # One row of a block stands where the target's own row is.
    assert slots_of(config) == (rows, rows - 1)
    take_out(patch)
    # vLLM 0.32 counts the first of them itself.
    assert slots_of(config) in {(3, 2), (rows, 2)}


@pytest.mark.parametrize("method", ["eagle", "dflash"])
def test_other_methods_are_left_alone(method: str, take_out: TakeOut) -> None:
    config = configured(SPECS[method])
    found = slots_of(config)
    take_out(patch)
    assert slots_of(config) == found
