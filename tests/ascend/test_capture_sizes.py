"""Our port of vllm-ascend's rule gives the sizes of a whole configuration on the simulated NPU."""

from __future__ import annotations

import pytest
from vllm.engine.arg_utils import EngineArgs

from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.graphs import stock_rules
from vllm_ascend_spec.graphs.planner import plan
from vllm_ascend_spec.graphs.stock_rules import Engine
from vllm_ascend_spec.graphs.tiers import tiers_of_drafts


def configured(max_num_seqs: int, k: int, **details: object) -> tuple[list[int], int]:
    """Return the configured sizes, and the tokens of a step."""
    config = EngineArgs(
        model=str(TARGET),
        max_num_seqs=max_num_seqs,
        max_model_len=512,
        dtype="float32",
        speculative_config={**SPECS["eagle"], "num_speculative_tokens": k},
        compilation_config={"cudagraph_mode": "FULL_DECODE_ONLY", **details},
    ).create_engine_config()
    sizes = config.compilation_config.cudagraph_capture_sizes
    return sizes, config.scheduler_config.max_num_batched_tokens


@pytest.mark.parametrize(("max_num_seqs", "k"), [(256, 2), (12, 3), (100, 7), (20, 1)])
def test_the_sizes_of_a_whole_configuration(max_num_seqs: int, k: int) -> None:
    sizes, batched = configured(max_num_seqs, k)
    tiers = tiers_of_drafts(max_num_seqs, [k])
    engine = Engine(max_num_seqs, tiers, max_num_batched_tokens=batched)
    assert sizes == stock_rules.ascend_sizes(engine)


def test_a_plan_is_configured_as_it_is() -> None:
    planned = list(plan(64, 2).sizes)
    assert configured(64, 2, cudagraph_capture_sizes=planned)[0] == planned
