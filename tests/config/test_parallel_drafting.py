"""What drafts of one pass cannot be combined with, and what does not draft so."""

from __future__ import annotations

from typing import Any

import pytest

from tests.zoo import EVERY, SPECS, TARGET
from vllm_ascend_spec.config.engine import EngineOptions
from vllm_ascend_spec.devices import npu
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks.preflight import resolve_engine

SCHEDULE = {"num_speculative_tokens_per_batch_size": [[1, 4, 3], [5, 8, 1]]}


def refusal(spec: dict[str, Any], **others: Any) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        resolve_engine(TARGET, spec, **others)
    return raised.value


def test_what_is_possible_passes() -> None:
    for name in ("pard", "dflash"):
        resolve_engine(TARGET, {**EVERY[name], **SCHEDULE, "draft_sample_method": "probabilistic"})


def test_a_padded_batch_is_needed() -> None:
    spec = {**SPECS["eagle3"], "parallel_drafting": True, "disable_padded_drafter_batch": True}
    assert refusal(spec).option == "speculative_config.disable_padded_drafter_batch"


@pytest.mark.parametrize("limit", [SCHEDULE, {"disable_by_batch_size": 4}])
def test_the_stock_loop_has_no_schedule(limit: dict[str, Any]) -> None:
    section = {"ascend_spec": {"draft_loop": "stock"}}
    found = refusal({**EVERY["pard"], **limit}, additional_config=section)
    assert found.option == "additional_config.ascend_spec.draft_loop"
    assert next(iter(limit)) in found.problem


def test_a_checkpoint_without_a_token_for_masks_is_refused() -> None:
    found = refusal({**SPECS["draft_model"], "parallel_drafting": True})
    assert found.option == "speculative_config.model"
    assert "names no mask token" in found.problem


def test_dflash_needs_no_option_to_draft_in_parallel() -> None:
    found = refusal({**SPECS["dflash"], "parallel_drafting": True})
    assert found.option == "speculative_config.parallel_drafting"


@pytest.mark.parametrize("name", ["pard", "dflash"])
def test_drafts_may_be_drawn_beside_full_graphs_of_an_npu(name: str) -> None:
    """The pass is outside of graphs there."""
    spec = {**EVERY[name], "draft_sample_method": "probabilistic"}
    engine = EngineOptions(device=npu.DEVICE, cudagraph_mode="FULL_DECODE_ONLY")
    resolve_engine(TARGET, spec, engine=engine)
    in_a_loop = {key: value for key, value in spec.items() if key != "parallel_drafting"}
    if name == "pard":
        found = refusal(in_a_loop, engine=engine)
        assert found.option == "speculative_config.draft_sample_method"
