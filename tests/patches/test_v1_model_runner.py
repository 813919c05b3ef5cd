"""Which model runner an engine gets; tests/platform/test_cuda.py has vLLM's own configuration."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from vllm.config import VllmConfig

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.patches import v1_model_runner
from vllm_ascend_spec.patches.v1_model_runner import VARIABLE, find_demand
from vllm_ascend_spec.platform.shared import check_model_runner
from vllm_ascend_spec.upstream.ranges import vllm_is


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def make_config(*, speculates: bool = True, hisparse: Any = None, **more: Any) -> Any:
    spec = SimpleNamespace(method="eagle") if speculates else None
    attention = SimpleNamespace(hisparse_config=hisparse)
    given = {"attention_config": attention, "watermark_config": None, **more}
    return SimpleNamespace(speculative_config=spec, **given)


def choose(config: Any, stock: bool = True) -> bool:
    return v1_model_runner._ForSpeculation(property(lambda _: stock)).choose(config)


@pytest.mark.parametrize("stock", [False, True])
def test_vllm_chooses_where_there_is_no_speculation(stock: bool) -> None:
    assert choose(make_config(speculates=False), stock) is stock


def test_speculation_runs_on_v1() -> None:
    assert choose(make_config()) is False
    assert find_demand(make_config()) is None
    check_model_runner(make_config())


@pytest.mark.skipif(vllm_is("<0.30"), reason="vLLM 0.23 has no such options")
@pytest.mark.parametrize(
    ("config", "option"),
    [
        (make_config(hisparse="a config"), "attention_config.hisparse_config='a config'"),
        (make_config(watermark_config="a config"), "watermark_config='a config'"),
    ],
)
def test_what_only_v2_can_do_is_refused_by_name(config: Any, option: str) -> None:
    assert choose(config) is True
    with pytest.raises(ConfigError, match="asks for model runner V2") as raised:
        check_model_runner(config)
    assert str(raised.value).startswith(option)


@pytest.mark.parametrize(("value", "option"), [("1", f"{VARIABLE}='1'"), ("0", None)])
def test_the_variable_is_blamed_only_where_it_is_set(
    value: str, option: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, value)
    demand = find_demand(make_config())
    assert (demand and f"{demand.option}={demand.value!r}") == option


def test_vllms_own_property_is_replaced_and_put_back() -> None:
    was_applied = bool(v1_model_runner._patches)
    v1_model_runner.revert()
    stock = VllmConfig.use_v2_model_runner
    v1_model_runner.apply()
    assert VllmConfig.use_v2_model_runner.stock is stock
    v1_model_runner.revert()
    assert VllmConfig.use_v2_model_runner is stock
    if was_applied:
        v1_model_runner.apply()
