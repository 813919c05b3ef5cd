"""The window of a draft's attention: both names, and where it is refused or has no effect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.zoo import EVERY, TARGET
from vllm_ascend_spec.config.draft_window import SIZES, sizes_below
from vllm_ascend_spec.config.engine import EngineOptions
from vllm_ascend_spec.config.examine import examine
from vllm_ascend_spec.config.problems import Examined
from vllm_ascend_spec.devices import cpu, npu
from vllm_ascend_spec.methods.registry import BUILT_IN

OURS, THEIRS = "additional_config.ascend_spec.draft_window", "additional_config.draft_window_size"
CPU, NPU = (EngineOptions(device=device.DEVICE) for device in (cpu, npu))


def found(
    additional: dict[str, Any],
    method: str = "eagle3",
    engine: EngineOptions = CPU,
    **spec: Any,
) -> Examined:
    return examine(TARGET, {**EVERY[method], **spec}, additional, engine, methods=BUILT_IN)


def ours(value: Any, **section: Any) -> dict[str, Any]:
    return {"ascend_spec": {"draft_window": value, **section}}


@pytest.mark.parametrize("engine", [CPU, NPU])
@pytest.mark.parametrize(
    ("additional", "value", "option"),
    [
        (ours(256), 256, OURS),
        (ours("auto"), "auto", OURS),
        (ours(None), None, None),
        ({"draft_window_size": 256}, 256, THEIRS),
        # vllm-ascend reads it so, too.
        ({"draft_window_size": "256"}, 256, THEIRS),
        ({"draft_window_size": 256, **ours(256)}, 256, OURS),
        ({"draft_window_size": None}, None, None),
    ],
)
def test_both_names_mean_the_same_on_every_device(
    additional: dict[str, Any], value: Any, option: str | None, engine: EngineOptions
) -> None:
    resolved = found(additional, engine=engine).resolved()
    assert resolved is not None
    assert resolved.draft_window == value
    assert resolved.sources.get("draft_window") == option


@pytest.mark.parametrize("method", [name for name in EVERY if BUILT_IN[EVERY[name]["method"]]])
def test_only_a_draft_that_attends_to_the_text_has_a_window(method: str) -> None:
    record = BUILT_IN[EVERY[method]["method"]]
    attends = record.has_draft_loop or method == "hybrid"
    seen = found(ours(64), method)
    assert [str(problem).split("=")[0] for problem in seen.problems] == [OURS] * (not attends)
    if not attends:
        assert "has no effect with method" in str(seen.problems[0])


@pytest.mark.parametrize("method", ["ngram", "medusa"])
def test_vllm_ascends_option_without_effect_is_a_warning(method: str) -> None:
    seen = found({"draft_window_size": 64}, method, NPU).resolved()
    assert seen is not None
    assert seen.draft_window is None
    assert any(f"{THEIRS}=64 has no effect with" in warning for warning in seen.warnings)


@pytest.mark.parametrize(
    ("additional", "engine", "spec", "option", "problem"),
    [
        (ours(0), CPU, {}, OURS, "=0: valid: a whole number of tokens from 1 on, or 'auto'"),
        (ours("256"), CPU, {}, OURS, "='256': valid: a whole number of tokens from 1 on"),
        (ours(True), CPU, {}, OURS, "=True: valid: a whole number"),
        (ours(2.5), CPU, {}, OURS, "=2.5: valid: a whole number"),
        (ours([256]), CPU, {}, OURS, "=[256]: valid: a whole number"),
        ({"draft_window_size": -1}, NPU, {}, THEIRS, "=-1: valid: a whole number from 1 on"),
        ({"draft_window_size": "many"}, CPU, {}, THEIRS, "='many': valid: a whole number from"),
        (
            {"draft_window_size": 64, **ours(128)},
            NPU,
            {},
            OURS,
            f"=128: contradicts {THEIRS}=64; give one of the two",
        ),
        ({"draft_window_size": 64, **ours("auto")}, CPU, {}, OURS, f"contradicts {THEIRS}=64"),
        (ours(2048), CPU, {}, OURS, "longer than 2048 tokens; valid: 1 to 2047"),
        ({"draft_window_size": 5000}, NPU, {}, THEIRS, "longer than 2048 tokens; valid: 1 to"),
        (ours(512), replace(CPU, max_model_len=512), {}, OURS, "longer than 512 tokens"),
        (ours(96), CPU, {"max_model_len": 96}, OURS, "longer than 96 tokens; valid: 1 to 95"),
        (ours("auto"), replace(CPU, max_model_len=256), {}, OURS, "tries windows from 256 tokens"),
        (ours(64, draft_loop="stock"), CPU, {}, OURS, "not possible with draft_loop='stock'"),
        (ours(64), replace(CPU, enable_eplb=True), {}, OURS, "with expert load balancing"),
    ],
)
def test_refusals(
    additional: dict[str, Any],
    engine: EngineOptions,
    spec: dict[str, Any],
    option: str,
    problem: str,
) -> None:
    problems = [str(each) for each in found(additional, engine=engine, **spec).problems]
    assert len(problems) == 1
    assert problems[0].startswith(option)
    assert problem in problems[0]
    assert "\n" not in problems[0]


def test_the_stock_loop_of_an_npu_has_a_window() -> None:
    assert not found(ours(64, draft_loop="stock"), engine=NPU).problems


def test_mtp_has_none_on_an_npu() -> None:
    (problem,) = found(ours(64), "mtp", NPU).problems
    assert "has no effect with MTP layers on an NPU" in str(problem)
    assert not found(ours(64), "mtp", CPU).problems


def test_auto_tries_what_texts_can_be_longer_than() -> None:
    assert sizes_below(SIZES[0]) == ()
    assert sizes_below(2048) == SIZES[:2]
    assert sizes_below(10**6) == SIZES
