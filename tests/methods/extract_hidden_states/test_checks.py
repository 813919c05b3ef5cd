"""Options of method ``extract_hidden_states``."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.zoo import ZOO_TARGET as TARGET
from vllm_ascend_spec.config.engine import EngineOptions, kv_connector_of
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks.preflight import resolve_engine

OPTION = "speculative_config.draft_model_config"
LAYERS = "eagle_aux_hidden_state_layer_ids"
ENGINE = EngineOptions(kv_connector="ExampleHiddenStatesConnector")


def spec(layers: Any = (0, 2, 12), **changes: Any) -> dict[str, Any]:
    found = {
        "method": "extract_hidden_states",
        "num_speculative_tokens": 1,
        "draft_model_config": {"hf_config": {LAYERS: layers}},
    }
    return {**found, **changes}


def refusal(
    wrong: dict[str, Any], engine: EngineOptions = ENGINE, model: str = TARGET
) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        resolve_engine(model, wrong, engine=engine)
    return raised.value


@pytest.mark.parametrize("layers", [[2], [0, 1, 2], [12]])
def test_right_layers_pass(layers: list[int]) -> None:
    found = resolve_engine(TARGET, spec(layers), engine=ENGINE)
    assert found is not None
    assert found.method == found.vllm_method == "extract_hidden_states"
    assert found.options == {"draft_model_config": {"hf_config": {LAYERS: layers}}}


def test_layers_of_a_target_that_is_not_here_are_not_counted() -> None:
    resolve_engine("org/target", spec([2, 18, 34]), engine=ENGINE)


@pytest.mark.parametrize(
    "layers", [[], [13], [-1], [2, 2], [6, 2], ["2"], [2.0], [True], 2, None, {"2": 2}]
)
def test_wrong_layers_are_refused(layers: Any) -> None:
    error = refusal(spec(layers))
    assert error.option == f"{OPTION}.hf_config.{LAYERS}"
    assert "whole numbers from 0 to 12 in rising order" in error.problem


@pytest.mark.parametrize("config", [{}, {"hf_config": {}}, {"hf_config": [2]}, {LAYERS: [2]}])
def test_another_form_is_refused(config: Any) -> None:
    error = refusal(spec(draft_model_config=config))
    assert error.option == OPTION
    assert LAYERS in error.problem


@pytest.mark.parametrize(
    ("config", "option"),
    [
        ({"hf_config": {LAYERS: [2]}, "model": "x"}, f"{OPTION}.model"),
        ({"hf_config": {LAYERS: [2], "hidden_size": 3}}, f"{OPTION}.hf_config.hidden_size"),
    ],
)
def test_what_has_no_effect_is_refused_by_name(config: Any, option: str) -> None:
    assert refusal(spec(draft_model_config=config)).option == option


@pytest.mark.parametrize("transfer", [None, {"kv_connector": "ExampleHiddenStatesConnector"}])
def test_no_connector_stores_states_where_vllm_puts_that_of_offloading(transfer: Any) -> None:
    engine = EngineOptions(kv_connector=kv_connector_of(transfer, 0.5))
    error = refusal(spec(), engine)
    assert error.option == "--kv-transfer-config"
    assert error.problem.startswith("vLLM puts that of --kv-offloading-size in the place of")
    assert kv_connector_of(transfer, None) == (transfer or {}).get("kv_connector")


def test_there_is_one_draft() -> None:
    error = refusal(spec(num_speculative_tokens=2))
    assert error.option == "speculative_config.num_speculative_tokens"
    assert "valid: 1" in error.problem


def test_states_have_to_be_kept_somewhere() -> None:
    error = refusal(spec(), EngineOptions())
    assert error.option == "--kv-transfer-config"
    assert "ExampleHiddenStatesConnector" in error.problem


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_speculative_tokens_per_batch_size", [[1, 8, 1]]),
        ("rejection_sample_method", "block"),
        ("draft_sample_method", "probabilistic"),
        ("disable_padded_drafter_batch", True),
    ],
)
def test_options_of_drafts_are_refused(key: str, value: Any) -> None:
    error = refusal(spec(**{key: value}))
    assert error.option == f"speculative_config.{key}"
    assert re.search("(no effect|not possible) with method 'extract_hidden_states'", error.problem)
