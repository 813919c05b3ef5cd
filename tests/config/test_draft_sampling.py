"""Drafts are sampled by default wherever that is possible."""

from __future__ import annotations

from typing import Any

import pytest

from tests.zoo import SPECS
from vllm_ascend_spec.config.engine import UNKNOWN, EngineOptions
from vllm_ascend_spec.config.resolved import SpecConfig
from vllm_ascend_spec.devices.registry import all_devices
from vllm_ascend_spec.hooks.preflight import resolve_engine
from vllm_ascend_spec.methods.registry import BUILT_IN as METHODS

EAGLE = SPECS["eagle"]
SCHEDULE = {"num_speculative_tokens_per_batch_size": [[1, 4, 2], [5, 8, 1]]}
CAN_SAMPLE = [name for name in SPECS if METHODS[name].can_sample_drafts]


def resolved(spec: dict[str, Any], device: str = "cpu", **engine: Any) -> SpecConfig:
    found = resolve_engine(
        "org/target", spec, engine=EngineOptions(device=all_devices()[device], **engine)
    )
    assert found is not None
    return found


def how(found: SpecConfig) -> tuple[str, str]:
    """Return how drafts are picked, and who said so."""
    return found.draft_sample_method, found.sources["draft_sample_method"]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("method", SPECS)
def test_they_are_where_the_method_can(method: str, device: str) -> None:
    found, source = how(resolved(SPECS[method], device))
    if method in CAN_SAMPLE:
        assert (found, source) == ("probabilistic", "auto")
    else:
        assert found == "greedy"
        assert f"method {method!r} cannot sample drafts" in source


@pytest.mark.parametrize("asked", ["greedy", "probabilistic"])
def test_values_of_vllm_keep_their_meaning(asked: str) -> None:
    found = resolved({**EAGLE, "draft_sample_method": asked})
    assert how(found) == (asked, "speculative_config.draft_sample_method")


def test_auto_by_name_is_the_default() -> None:
    assert resolved({**EAGLE, "draft_sample_method": "auto"}) == resolved(EAGLE)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.0},
            "rejection_sample_method='synthetic'",
        ),
        ({"use_local_argmax_reduction": True}, "use_local_argmax_reduction"),
    ],
)
def test_options_that_want_greedy_drafts_have_them(options: dict[str, Any], reason: str) -> None:
    found, source = how(resolved({**EAGLE, **options}))
    assert found == "greedy"
    assert reason in source


def test_so_has_another_vocabulary() -> None:
    found, source = how(resolved({**SPECS["draft_model"], "use_heterogeneous_vocab": True}))
    assert found == "greedy"
    assert "use_heterogeneous_vocab" in source


@pytest.mark.parametrize(
    ("engine", "wanted"),
    [
        ({}, "greedy"),
        ({"cudagraph_mode": "FULL_DECODE_ONLY"}, "greedy"),
        ({"cudagraph_mode": UNKNOWN}, "greedy"),
        ({"cudagraph_mode": "PIECEWISE"}, "probabilistic"),
        ({"enforce_eager": True}, "probabilistic"),
    ],
)
def test_drafts_in_full_graphs_of_an_npu_are_greedy(engine: dict[str, Any], wanted: str) -> None:
    found, source = how(resolved(EAGLE, "npu", **engine))
    assert found == wanted
    assert (source == "auto") == (wanted == "probabilistic")


def test_so_they_are_with_a_schedule_of_k() -> None:
    """Sampled ones would make its full graphs piecewise."""
    assert how(resolved({**EAGLE, **SCHEDULE}, "npu"))[0] == "greedy"
    found = how(resolved({**EAGLE, **SCHEDULE}, "npu", enforce_eager=True))
    assert found[0] == "probabilistic"


@pytest.mark.parametrize("method", ["medusa", "mlp_speculator", "dflash", "dspark"])
def test_drafts_beside_the_graphs_of_an_npu_are_sampled(method: str) -> None:
    assert how(resolved(SPECS[method], "npu"))[0] == "probabilistic"


def test_the_block_rule_gains_without_another_word() -> None:
    found = resolve_engine("org/target", EAGLE, {"ascend_spec": {"verify_rule": "block"}})
    assert found is not None
    assert found.warnings == ()
