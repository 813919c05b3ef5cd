"""Which engines keep full graphs where K changes."""

from __future__ import annotations

import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.config import CUDAGraphMode

from vllm_ascend_spec.config.capture import has_graphs_by_k
from vllm_ascend_spec.config.resolved import SpecConfig, attach, speculation_of
from vllm_ascend_spec.config.schedulers import SCHEDULERS
from vllm_ascend_spec.devices.registry import all_devices
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.platform.dynamic_k import hide_dynamic_k, settle_auto

ROWS = ((1, 4, 3), (5, 64, 1))
RECORD = SpecConfig(
    device="npu",
    family="ascend",
    method="eagle",
    vllm_method="eagle",
    drafter=(),
    max_k=3,
    schedule=ROWS,
)


def engine(record: SpecConfig | None = RECORD, **changes: Any) -> Any:
    """Return vLLM's configuration of an engine with a schedule of K, before its defaults."""
    values = {
        "mode": None,
        "level": 2,
        "scheduler_cls": None,
        "use_mla": False,
        "is_moe": False,
        "decode_context_parallel_size": 1,
        "data_parallel_size": 1,
        "parallel_drafting": False,
        **changes,
    }
    spec = SimpleNamespace(
        num_speculative_tokens_per_batch_size=[list(row) for row in ROWS],
        parallel_drafting=values["parallel_drafting"],
    )
    found = SimpleNamespace(
        speculative_config=spec,
        optimization_level=values["level"],
        compilation_config=SimpleNamespace(cudagraph_mode=values["mode"]),
        scheduler_config=SimpleNamespace(scheduler_cls=values["scheduler_cls"]),
        model_config=SimpleNamespace(
            use_mla=values["use_mla"],
            is_moe=values["is_moe"],
        ),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=values["decode_context_parallel_size"],
            data_parallel_size=values["data_parallel_size"],
        ),
    )
    if record is not None:
        attach(found, record)
    return found


def sees_schedule(vllm_config: Any) -> bool:
    """Tell whether vLLM sees the schedule, by which it lowers the mode of graphs."""
    return vllm_config.speculative_config.num_speculative_tokens_per_batch_size is not None


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keep the warnings."""
    lines: list[str] = []

    def note(level: int, line: str) -> None:
        assert level in (logging.WARNING, logging.INFO)
        lines.append(line)

    monkeypatch.setattr("vllm_ascend_spec.platform.dynamic_k.log_once", note)
    return lines


@pytest.mark.parametrize("mode", [None, *CUDAGraphMode.__members__.values()])
@pytest.mark.parametrize("scheduler", [None, SCHEDULERS[False, True]])
def test_vllm_is_not_shown_the_schedule(mode: Any, scheduler: str | None) -> None:
    found = engine(mode=mode, scheduler_cls=scheduler)
    hide_dynamic_k(found, has_graphs_by_k=True)
    assert sees_schedule(found) == (mode == CUDAGraphMode.FULL)
    assert has_graphs_by_k(found.compilation_config) == (mode != CUDAGraphMode.FULL)


@pytest.mark.parametrize(
    ("record", "changes", "problem"),
    [
        ({}, {"scheduler_cls": "my.Scheduler"}, "a scheduler that is not ours"),
        ({}, {"use_mla": True}, "multi-head latent attention"),
        ({}, {"mode": CUDAGraphMode.FULL}, "any mixture of requests"),
        ({"draft_loop": "stock"}, {}, "the draft loop of vllm-ascend"),
        ({"draft_sample_method": "probabilistic"}, {}, "sampled drafts"),
        ({}, {"decode_context_parallel_size": 2}, "decode context parallelism"),
    ],
)
def test_what_full_graphs_cannot_hold_is_named(
    record: dict[str, Any], changes: dict[str, Any], problem: str, told: list[str]
) -> None:
    found = engine(replace(RECORD, **record), **changes)
    hide_dynamic_k(found, has_graphs_by_k=True)
    assert sees_schedule(found)
    (line,) = told
    assert problem in line
    assert line.startswith("Piecewise graphs are used")


def test_drafts_of_one_pass_may_be_sampled() -> None:
    record = replace(RECORD, draft_sample_method="probabilistic")
    found = engine(record, parallel_drafting=True)
    hide_dynamic_k(found, has_graphs_by_k=True)
    assert not sees_schedule(found)


def test_methods_without_a_draft_model_do_not_mind_its_limits() -> None:
    found = engine(replace(RECORD, draft_loop=None), decode_context_parallel_size=2)
    hide_dynamic_k(found, has_graphs_by_k=True)
    assert not sees_schedule(found)


@pytest.mark.parametrize(
    ("device_has_them", "changes", "are_kept"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"is_moe": True}, False),
        (True, {"use_mla": True}, False),
    ],
)
def test_vllm_is_not_shown_it_where_there_are_copies(
    device_has_them: bool, changes: dict[str, Any], are_kept: bool
) -> None:
    """It would drop it, and say so. Lock-step replicas have full graphs for the largest K alone."""
    found = engine(data_parallel_size=2, **changes)
    hide_dynamic_k(found, has_graphs_by_k=device_has_them)
    assert not sees_schedule(found)
    assert has_graphs_by_k(found.compilation_config) == are_kept


def test_another_scheduler_would_not_see_it_either() -> None:
    found = engine(data_parallel_size=2, scheduler_cls="my.Scheduler")
    with pytest.raises(ConfigError, match=r"--scheduler-cls='my\.Scheduler': not possible"):
        hide_dynamic_k(found, has_graphs_by_k=False)


def test_without_copies_vllm_lowers_the_graphs_of_other_devices(told: list[str]) -> None:
    found = engine()
    hide_dynamic_k(found, has_graphs_by_k=False)
    assert sees_schedule(found)
    assert told == []


@pytest.mark.parametrize("changes", [{"mode": CUDAGraphMode.PIECEWISE}, {"level": 1}])
def test_nobody_is_told_where_there_are_no_full_graphs(
    changes: dict[str, Any], told: list[str]
) -> None:
    found = engine(use_mla=True, **changes)
    hide_dynamic_k(found, has_graphs_by_k=True)
    assert sees_schedule(found)
    assert told == []


@pytest.mark.parametrize("record", [None, replace(RECORD, schedule=None)])
def test_what_vllm_has_of_others_is_left_alone(record: SpecConfig | None) -> None:
    """A configuration that was built by hand is resolved later."""
    found = engine(record)
    hide_dynamic_k(found, has_graphs_by_k=True)
    assert sees_schedule(found)


AUTO = replace(RECORD, schedule=None, draft_length="auto", draft_lengths=(0, 3))
NPU, CUDA, CPU = (all_devices()[name] for name in ("npu", "cuda", "cpu"))


def settled(
    monkeypatch: pytest.MonkeyPatch, device: Any = NPU, record: SpecConfig = AUTO, **changes: Any
) -> Any:
    """Return an engine's configuration with K and 0 settled, as vLLM builds it."""
    found = engine(None, **changes)
    found.speculative_config.num_speculative_tokens_per_batch_size = None
    monkeypatch.setattr("vllm_ascend_spec.platform.dynamic_k.pending_or_attached", lambda _: record)
    settle_auto(found, device)
    return found


@pytest.mark.parametrize("mode", [None, CUDAGraphMode.FULL_DECODE_ONLY, CUDAGraphMode.NONE])
def test_k_or_none_has_graphs_for_both_on_an_npu(
    mode: Any, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    found = settled(monkeypatch, mode=mode)
    assert speculation_of(found) == AUTO
    assert has_graphs_by_k(found.compilation_config)
    assert told == []


@pytest.mark.parametrize(
    ("device", "record", "changes", "reason"),
    [
        (NPU, {}, {"use_mla": True}, "multi-head latent attention"),
        (NPU, {}, {"mode": CUDAGraphMode.FULL}, "any mixture of requests"),
        (NPU, {"capture": "given"}, {}, "cudagraph_capture_sizes"),
        (NPU, {"capture_graphs": 3}, {}, "capture_graphs"),
        (CUDA, {}, {}, "full graphs, which vLLM makes piecewise"),
        (CUDA, {}, {"mode": CUDAGraphMode.FULL_DECODE_ONLY}, "full graphs, which vLLM makes"),
        (CPU, {}, {"scheduler_cls": "my.Scheduler"}, "--scheduler-cls"),
        (CPU, {}, {"data_parallel_size": 2, "is_moe": True}, "replicas that step together"),
    ],
)
def test_k_is_fixed_where_something_does_not_go_with_none(
    device: Any,
    record: dict[str, Any],
    changes: dict[str, Any],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    told: list[str],
) -> None:
    found = settled(monkeypatch, device, replace(AUTO, **record), **changes)
    speculation = speculation_of(found)
    assert (speculation.draft_length, speculation.draft_lengths) == ("fixed", None)
    assert reason in speculation.sources["draft_length"]
    assert speculation.lengths == (3,)
    assert not has_graphs_by_k(found.compilation_config)
    (line,) = told
    assert line.startswith("K=3 is fixed: ")
    assert reason in line


@pytest.mark.parametrize(
    ("device", "changes"),
    [
        (CUDA, {"mode": CUDAGraphMode.PIECEWISE}),
        (CPU, {}),
        (CPU, {"use_mla": True}),
        (CPU, {"data_parallel_size": 2}),
    ],
)
def test_k_or_none_goes_with_everything_else(
    device: Any, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert speculation_of(settled(monkeypatch, device, **changes)) == AUTO


def test_a_copy_of_the_configuration_for_a_draft_settles_nothing_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = settled(monkeypatch)
    found.model_config.use_mla = True
    settle_auto(found, NPU)
    assert speculation_of(found) == AUTO
