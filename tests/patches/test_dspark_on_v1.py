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


def configured(spec: dict[str, Any]) -> Any:
    """Return the configuration of an engine."""
    from vllm.engine.arg_utils import EngineArgs

    arguments: dict[str, Any] = {"model": TARGET, "dtype": "float32", "max_model_len": 256}
    return EngineArgs(**arguments, speculative_config=dict(spec)).create_engine_config()


def test_stock_fault_and_patch(take_out: TakeOut) -> None:
    take_out(patch)
    with pytest.raises(ValueError, match="V1 does not support: dspark speculative decoding"):
        configured(SPECS["dspark"])
    patch.apply()
    assert configured(SPECS["dspark"]).speculative_config.method == "dspark"


@pytest.mark.parametrize(("first_yields", "rows"), [(True, 3), (False, 4)])
def test_each_row_of_a_block_has_a_slot(first_yields: bool, rows: int, tmp_path: Path) -> None:
    folder = tmp_path / "dspark"
    shutil.copytree(SPECS["dspark"]["model"], folder)
    config = json.loads((folder / "config.json").read_text())
    config["sample_from_anchor"] = first_yields
    (folder / "config.json").write_text(json.dumps(config))
    patch.apply()
    found = configured({**SPECS["dspark"], "model": str(folder)})
    assert found.num_lookahead_tokens == rows
    # One row of a block stands where the target's own row is.
    assert found.speculative_config.max_num_new_slots_for_drafting == rows - 1


def test_other_methods_are_left_alone(take_out: TakeOut) -> None:
    take_out(patch)
    stock = [configured(SPECS[name]).num_lookahead_tokens for name in ("eagle", "dflash")]
    patch.apply()
    assert [configured(SPECS[name]).num_lookahead_tokens for name in ("eagle", "dflash")] == stock
