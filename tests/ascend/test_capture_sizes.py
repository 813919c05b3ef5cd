"""Which graphs a whole configuration captures on the simulated NPU: ours, stock's, one's own."""

from __future__ import annotations

from typing import Any

import pytest
from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs

from tests.engines import with_fixed_length
from tests.zoo import ZOO_SPECS as SPECS
from tests.zoo import ZOO_TARGET as TARGET
from vllm_ascend_spec.config import graph_estimates
from vllm_ascend_spec.config.capture import has_graphs_by_k, sizes_by_k
from vllm_ascend_spec.config.resolved import speculation_of
from vllm_ascend_spec.errors import AscendSpecError
from vllm_ascend_spec.graphs import stock_rules
from vllm_ascend_spec.graphs.planner import plan
from vllm_ascend_spec.graphs.stock_rules import CaptureInputs
from vllm_ascend_spec.graphs.tiers import tiers_of_drafts

STOCK = {"ascend_spec": {"capture": "stock"}}
MODES = ("FULL_DECODE_ONLY", "FULL_AND_PIECEWISE", "PIECEWISE")


def configured(
    max_num_seqs: int,
    k: int,
    mode: str = "FULL_DECODE_ONLY",
    additional: dict[str, Any] | None = None,
    method: str = "eagle",
    **details: object,
) -> VllmConfig:
    """Return what vLLM and vllm-ascend make of an engine's arguments; K is fixed by default."""
    arguments = {
        "model": str(TARGET),
        "max_num_seqs": max_num_seqs,
        "max_model_len": 512,
        "dtype": "float32",
        "speculative_config": {**SPECS[method], "num_speculative_tokens": k},
        "additional_config": additional or {},
        "compilation_config": {"cudagraph_mode": mode, **details},
    }
    return EngineArgs(**with_fixed_length(arguments)).create_engine_config()


def sizes_of(config: VllmConfig) -> list[int]:
    """Return the sizes, once the runner has rounded them as vLLM's and vllm-ascend's do."""
    compilation = config.compilation_config
    assert compilation.max_cudagraph_capture_size == compilation.cudagraph_capture_sizes[-1]
    if compilation.cudagraph_mode.has_full_cudagraphs():
        ranks = config.parallel_config.tensor_parallel_size
        width = config.speculative_config.num_speculative_tokens + 1
        compilation.adjust_cudagraph_sizes_for_spec_decode(width, ranks)
    return compilation.cudagraph_capture_sizes


@pytest.mark.parametrize(("max_num_seqs", "k"), [(256, 2), (12, 3), (100, 7), (20, 1)])
def test_stock_sizes_of_a_whole_configuration(max_num_seqs: int, k: int) -> None:
    config = configured(max_num_seqs, k, additional=STOCK)
    batched = config.scheduler_config.max_num_batched_tokens
    tiers = tiers_of_drafts(max_num_seqs, [k])
    engine = CaptureInputs(max_num_seqs, tiers, max_num_batched_tokens=batched)
    found = config.compilation_config.cudagraph_capture_sizes
    assert found == stock_rules.ascend_sizes(engine)


@pytest.mark.parametrize("max_num_seqs", [12, 20])
def test_stock_has_a_graph_for_the_most_requests(max_num_seqs: int) -> None:
    """In 0.30.0rc2, if they are few; before, it had none for 12 or 20 (vllm-ascend #16049)."""
    found = sizes_of(configured(max_num_seqs, 3, additional=STOCK))
    assert found[-1] == 4 * max_num_seqs
    assert not any(size % 4 for size in found)


@pytest.mark.parametrize(
    ("max_num_seqs", "k"), [(8, 3), (12, 3), (12, 2), (20, 4), (33, 5), (100, 7), (256, 2)]
)
@pytest.mark.parametrize("mode", MODES)
def test_every_batch_has_a_graph(max_num_seqs: int, k: int, mode: str) -> None:
    config = configured(max_num_seqs, k, mode)
    planned = list(config.compilation_config.cudagraph_capture_sizes)
    sizes = sizes_of(config)
    # Nothing was rounded, added or left out after the plan.
    assert sizes == planned
    assert sizes[-1] >= max_num_seqs * (k + 1)
    if mode != "PIECEWISE":
        assert not any(size % (k + 1) for size in sizes)


def test_stock_leaves_wide_batches_without_one() -> None:
    """Negative control of the test above."""
    assert sizes_of(configured(256, 2, additional=STOCK))[-1] < 256 * 3


def test_graphs_of_pieces_have_the_width_of_later_draft_steps() -> None:
    room = {"ascend_spec": {"capture_graphs": 12}}
    rows = sizes_of(configured(8, 3, "PIECEWISE", room))
    assert {1, 2, 3, 4, 8, 12, 16, 20, 24, 28, 32} <= set(rows)
    # No draft model, no such steps.
    others = sizes_of(configured(8, 3, "PIECEWISE", room, method="ngram"))
    assert not any(n % 4 for n in others)


@pytest.mark.parametrize(("max_num_seqs", "k"), [(4, 4), (20, 3)])
def test_each_of_few_batch_sizes_has_its_own_graph(max_num_seqs: int, k: int) -> None:
    every = [(k + 1) * n for n in range(1, max_num_seqs + 1)]
    assert sizes_of(configured(max_num_seqs, k)) == every
    stock = sizes_of(configured(max_num_seqs, k, additional=STOCK))
    assert len(stock) < len(every)


def test_not_where_an_old_device_has_too_few_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_estimates, "USABLE_STREAMS", 30)
    stock = sizes_of(configured(20, 3, additional=STOCK))
    assert len(sizes_of(configured(20, 3))) == len(stock)


def test_a_plan_has_as_many_graphs_as_asked_for_or_as_stock() -> None:
    ours, stock = configured(100, 3), configured(100, 3, additional=STOCK)
    assert len(sizes_of(ours)) <= len(sizes_of(stock))
    few = configured(20, 3, additional={"ascend_spec": {"capture_graphs": 3}})
    assert len(sizes_of(few)) == 3
    assert sizes_of(few)[-1] == 80


AUTO = {"ascend_spec": {"draft_length": "auto"}}


def test_k_and_none_have_graphs_of_their_own() -> None:
    config = configured(8, 3, additional=AUTO)
    assert speculation_of(config).draft_lengths == (0, 3)
    found = sizes_by_k(config.compilation_config)
    # As many for K as where it is fixed.
    assert list(found[3]) == sizes_of(configured(8, 3))
    assert found[0][-1] == 8


def test_graphs_for_none_give_way_where_an_old_device_has_no_streams_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(graph_estimates, "USABLE_STREAMS", 60)
    config = configured(8, 3, additional=AUTO)
    found = speculation_of(config)
    assert (found.draft_length, found.draft_lengths) == ("fixed", None)
    assert "streams before HDK 25.5.1" in found.sources["draft_length"]
    assert not has_graphs_by_k(config.compilation_config)
    assert not sizes_by_k(config.compilation_config)
    assert "Adaptive" not in config.scheduler_config.scheduler_cls
    assert sizes_of(config) == sizes_of(configured(8, 3))


def test_a_load_decides_which() -> None:
    def planned(load: str) -> list[int]:
        options = {"capture_graphs": 3, "capture_load": load}
        return sizes_of(configured(20, 3, additional={"ascend_spec": options}))

    assert planned("zipf")[0] < planned("uniform")[0] < planned("normal:18,2")[0]


def test_a_limit_on_the_largest_is_kept() -> None:
    sizes = sizes_of(configured(20, 3, max_cudagraph_capture_size=50))
    assert sizes[-1] == 48


@pytest.mark.parametrize("mode", MODES)
def test_a_persons_list_is_captured_exactly(mode: str) -> None:
    own = list(plan(64, 2).sizes)[1::3]
    assert sizes_of(configured(64, 2, mode, cudagraph_capture_sizes=own)) == own


@pytest.mark.parametrize(
    ("mode", "max_num_seqs", "sizes", "nearest"),
    [
        # The seed's list is [5, 10, 15, 20]; these are what people write instead.
        ("FULL_DECODE_ONLY", 4, [1, 2, 3, 4], [5, 10, 15, 20]),
        ("FULL_AND_PIECEWISE", 4, [8, 16], [10, 20]),
        ("FULL_DECODE_ONLY", 4, [5, 10, 30], [5, 10, 20]),
        ("PIECEWISE", 4, [5, 9000], [5]),
    ],
)
def test_another_list_is_refused_with_the_nearest(
    mode: str, max_num_seqs: int, sizes: list[int], nearest: list[int]
) -> None:
    with pytest.raises(ValueError, match="cudagraph_capture_sizes") as refused:
        configured(max_num_seqs, 4, mode, cudagraph_capture_sizes=sizes)
    assert f"nearest valid list: {nearest}" in str(refused.value)


def test_without_our_check_vllm_changes_such_a_list_in_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control."""
    from vllm_ascend_spec.config import capture as rules
    from vllm_ascend_spec.platform import capture

    monkeypatch.setattr(rules, "check", lambda *args, **kwargs: None)
    monkeypatch.setattr(capture, "_require_exactly", lambda *args: None)
    assert sizes_of(configured(4, 4, cudagraph_capture_sizes=[8, 16])) == [10]


def test_sizes_that_are_named_elsewhere_are_the_planned_ones() -> None:
    config = configured(12, 3, "PIECEWISE", compile_sizes=["cudagraph_capture_sizes"])
    compilation = config.compilation_config
    assert sorted(compilation.compile_sizes) == compilation.cudagraph_capture_sizes


@pytest.mark.parametrize(
    ("ours", "option"),
    [
        ({"capture_load": "sometimes"}, "capture_load"),
        ({"capture_graphs": 0}, "capture_graphs"),
        ({"capture": "stock", "capture_graphs": 3}, "capture_graphs"),
        ({"capture": "all"}, "capture"),
    ],
)
def test_what_cannot_be_planned_is_refused(ours: dict[str, Any], option: str) -> None:
    with pytest.raises(AscendSpecError, match=f"ascend_spec.{option}"):
        configured(12, 3, additional={"ascend_spec": ours})


def test_a_plan_and_a_list_contradict_each_other() -> None:
    with pytest.raises(AscendSpecError, match="contradicts"):
        configured(
            12,
            3,
            additional={"ascend_spec": {"capture_graphs": 3}},
            cudagraph_capture_sizes=[4, 48],
        )
